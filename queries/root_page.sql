-- Page of an SQLite file at which the tree of a table begins.
--   ?  name of the table
SELECT schema_entry.rootpage
FROM sqlite_master AS schema_entry
WHERE schema_entry.type = 'table'
  AND schema_entry.name = ?
