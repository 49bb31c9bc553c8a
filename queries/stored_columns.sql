-- How the columns of one table are stored: declared type, whether the value is left to the row's number,
-- whether it is computed.
--   ?1  name of the table
SELECT table_column.name,
       UPPER(table_column.type) AS declared_type,
       table_column.pk > 0 AND UPPER(table_column.type) = 'INTEGER' AS may_be_row_number,
       table_column.hidden AS is_computed
FROM pragma_table_xinfo(?1) AS table_column
ORDER BY table_column.cid
