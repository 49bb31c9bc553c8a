-- Names of the columns of one table, in their order.
--   ?  name of the table
SELECT table_column.name
FROM pragma_table_info(?) AS table_column
ORDER BY table_column.cid
