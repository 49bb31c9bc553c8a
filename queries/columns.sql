-- Names of the columns of one table, in their order.
--   ?1  name of the table
SELECT table_column.name
FROM pragma_table_info(?1) AS table_column
ORDER BY table_column.cid
