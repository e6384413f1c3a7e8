-- Delete the rows of keys that have been fresh for a minute, at most so many in a call, and entries as many.
--
-- It waits for nobody: rows that are locked are left for later. A log's row goes when its entries are gone.
-- Returns how many rows went; fewer than asked for: there were no more.

-- The same as `sweep` at another instant, for tests. Whoever calls it needs the right to delete by himself: at a
-- far instant everything goes.
CREATE OR REPLACE FUNCTION sweep_at(rows_most int, instant_us bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  places tid[];
  of_rules bytea[];
  of_keys bytea[];
  kinds "char"[];
  gone bigint;
BEGIN
  SELECT array_agg(t.place), array_agg(t.rule), array_agg(t.key), array_agg(t.kind)
  INTO places, of_rules, of_keys, kinds
  FROM (
    SELECT d.ctid AS place, d.rule, d.key, d.kind FROM state d
    WHERE d.sweep_at_us < instant_us
    ORDER BY d.sweep_at_us LIMIT rows_most
    FOR UPDATE SKIP LOCKED
  ) t;
  IF places IS NULL THEN
    RETURN 0;
  END IF;
  DELETE FROM entries WHERE ctid = ANY (ARRAY(
    SELECT e.place FROM unnest(of_rules, of_keys, kinds) u (rule, key, kind),
      LATERAL (
        SELECT f.ctid AS place FROM entries f WHERE f.rule = u.rule AND f.key = u.key LIMIT rows_most
      ) e
    WHERE u.kind = 'G' LIMIT rows_most
  ));
  DELETE FROM state t USING unnest(places, of_rules, of_keys, kinds) u (place, rule, key, kind)
  WHERE t.ctid = u.place
    AND (u.kind IS DISTINCT FROM 'G'
         OR NOT EXISTS (SELECT FROM entries e WHERE e.rule = u.rule AND e.key = u.key));
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END
$$;

-- By the server's clock nothing goes that still counts.
CREATE OR REPLACE FUNCTION sweep(rows_most int) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN sweep_at(rows_most, clock_us());
END
$$;
