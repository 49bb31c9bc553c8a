-- Indexes that keep the primary key of one table. Without one, the key is the row's number or there is none.
--   ?  name of the table
SELECT table_index.name
FROM pragma_index_list(?) AS table_index
WHERE table_index.origin = 'pk'
