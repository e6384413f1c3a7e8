-- What operators ask: which keys there are. Ordered by rule and key, so that a page begins where the last ended.

-- The rows of one rule (null: of all) whose key begins so, after the given one, at most so many.
CREATE OR REPLACE FUNCTION listed(
  of_rule bytea, prefix bytea, after_rule bytea, after_key bytea, rows_most int
) RETURNS SETOF state LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN QUERY
    SELECT t.* FROM state t
    WHERE (t.rule, t.key) > (greatest(after_rule, of_rule), CASE
        WHEN after_rule IS NULL OR after_rule < of_rule THEN ''::bytea ELSE after_key END)
      AND (of_rule IS NULL OR t.rule = of_rule)
      AND (prefix IS NULL OR substring(t.key FROM 1 FOR length(prefix)) = prefix)
      AND t.kind IS NOT NULL
    ORDER BY t.rule, t.key LIMIT rows_most;
END
$$;
