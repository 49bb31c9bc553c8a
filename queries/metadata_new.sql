-- Facts about the export itself (schema 3.2 and later). Only these keys are read: the table also
-- holds paths and user names.
SELECT fact.name, fact.value
FROM META_DATA_EXPORT AS fact
WHERE fact.name IN (
    'EXPORT_PRODUCT_VERSION',
    'EXPORT_SCHEMA_VERSION',
    'EXPORT_CONFIG_TIME_SHIFT',
    'EXPORT_PARAM_TABLES_TO_EXPORT',
    'EXPORT_PARAM_TIMES_TO_EXPORT'
)
