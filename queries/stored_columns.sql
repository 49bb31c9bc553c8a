-- How the columns of one table are stored: declared type, whether the row number is the value (where no
-- index keeps the key), whether it is computed. The last column is the default value.
--   ?  name of the table
SELECT table_column.name,
       UPPER(table_column.type) AS declared_type,
       table_column.pk > 0 AS is_key,
       table_column.hidden > 0 AS is_computed,
       table_column.dflt_value AS default_sql
FROM pragma_table_xinfo(?) AS table_column
ORDER BY table_column.cid
