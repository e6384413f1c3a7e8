-- What operators ask: which keys there are, what one holds, and what is known of the whole.

-- The next keys after the given one, of one rule (null: of all), in the order of rule and key; `whole` where
-- that is not all of a key.
CREATE OR REPLACE FUNCTION listed(of_rule bytea, after_rule bytea, after_key bytea, rows_most int)
RETURNS TABLE (rule bytea, key bytea, whole bytea) LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
BEGIN
  IF of_rule IS NULL THEN
    RETURN QUERY
      SELECT t.rule, t.key, t.whole FROM state t
      WHERE (t.rule, t.key) > (after_rule, after_key) AND t.kind IS NOT NULL
      ORDER BY t.rule, t.key LIMIT rows_most;
  ELSE
    RETURN QUERY
      SELECT t.rule, t.key, t.whole FROM state t
      WHERE t.rule = of_rule AND t.key > after_key AND t.kind IS NOT NULL
      ORDER BY t.key LIMIT rows_most;
  END IF;
END
$$;

-- The row of one key, as text in the order of its columns; none if there is no such row.
CREATE OR REPLACE FUNCTION shown(of_rule bytea, of_key bytea)
RETURNS TABLE (kind text, calendar text, numbers bigint[], sweep_at_us bigint) LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
BEGIN
  RETURN QUERY
    SELECT
      t.kind::text, t.calendar::text,
      ARRAY[
        coalesce(t.room, 0), coalesce(t.q, 0), coalesce(t.p, 0), coalesce(t.length_us, 0), coalesce(t.parts, 0),
        coalesce(t.used, 0), coalesce(t.before, 0), coalesce(t.at_us, 0), coalesce(t.busy_since_us, 0),
        coalesce(t.given_back, 0), coalesce(t.start_us, 0), coalesce(t.end_us, 0)
      ],
      t.sweep_at_us
    FROM state t WHERE t.rule = of_rule AND t.key = of_key AND t.kind IS NOT NULL;
END
$$;

-- Whether the tables are logged, since when nothing has been lost (null: unknown), and about how many rows
-- there are.
CREATE OR REPLACE FUNCTION facts(OUT is_logged boolean, OUT since_us bigint, OUT rows_about bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  SELECT c.relpersistence = 'p', greatest(0, c.reltuples)::bigint INTO is_logged, rows_about
  FROM pg_catalog.pg_class c WHERE c.oid = 'state'::regclass;
  SELECT e.since_us INTO since_us FROM epoch e;
END
$$;
