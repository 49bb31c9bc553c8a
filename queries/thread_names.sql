-- Names of threads; one thread may have several, the last given comes first.
SELECT thread.globalTid AS global_tid, string.value AS name
FROM ThreadNames AS thread
JOIN StringIds AS string ON string.id = thread.nameId
ORDER BY thread.rowid DESC
