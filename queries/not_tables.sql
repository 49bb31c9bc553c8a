-- Names of views and virtual tables, which are never read.
SELECT schema_entry.name
FROM sqlite_master AS schema_entry
WHERE schema_entry.type = 'view'
  OR (schema_entry.type = 'table' AND COALESCE(schema_entry.rootpage, 0) <= 0)
