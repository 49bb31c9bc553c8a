-- Types of generic events among which are samples of GPU metrics: every GPU has a metric of one of these names.
SELECT DISTINCT event.typeId AS type_id
FROM GENERIC_EVENTS AS event
WHERE event.data LIKE '%"GR Active%'
    OR event.data LIKE '%"SM Active%'
    OR event.data LIKE '%"SMs Active%'
