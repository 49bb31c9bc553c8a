-- Indexes that keep the primary key of one table. Without one, the key is the row's number or there is none.
--   ?1  name of the table
SELECT table_index.name
FROM pragma_index_list(?1) AS table_index
WHERE table_index.origin = 'pk'
