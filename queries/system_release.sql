-- The release of the operating system's kernel, and the name of the host.
SELECT
    fact.name AS fact,
    fact.value AS fact_value
FROM TARGET_INFO_SYSTEM_ENV AS fact
WHERE fact.name IN ('SoftwareReleaseVersion', 'Hostname')
ORDER BY fact.rowid
