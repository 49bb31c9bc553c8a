-- Size of a page in bytes, number of pages, and encoding of texts of an SQLite file.
SELECT page_size.page_size AS page_bytes,
       page_count.page_count,
       text_encoding.encoding
FROM pragma_page_size AS page_size,
     pragma_page_count AS page_count,
     pragma_encoding AS text_encoding
