-- Names of the real tables of an export, in their order. Views and virtual tables are left out.
SELECT schema_entry.name
FROM sqlite_master AS schema_entry
WHERE schema_entry.type = 'table'
  AND schema_entry.rootpage > 0
ORDER BY schema_entry.rowid
