-- Facts about the export itself (up to schema 3.1). Only these keys are read: the table also
-- holds paths and user names.
SELECT fact.name, fact.value
FROM EXPORT_META_DATA AS fact
WHERE fact.name IN (
    'EXPORT_PRODUCT_VERSION',
    'EXPORT_SCHEMA_VERSION',
    'EXPORT_CONFIG_TIME_SHIFT',
    'EXPORT_PARAM_TABLES_TO_EXPORT',
    'EXPORT_PARAM_TIMES_TO_EXPORT'
)
