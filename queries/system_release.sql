-- The release of the operating system's kernel.
SELECT fact.value AS release
FROM TARGET_INFO_SYSTEM_ENV AS fact
WHERE fact.name = 'SoftwareReleaseVersion'
ORDER BY fact.rowid
LIMIT 1
