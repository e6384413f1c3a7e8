-- These keys are fresh. Their rows stay, so that receipts of before return nothing afterwards.
CREATE OR REPLACE FUNCTION forget(of_rules bytea[], of_keys bytea[], numbers bigint[], wholes bytea[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  checked bigint := checked_call(numbers);
  found_here bigint := 0;
  row_at tid;
BEGIN
  FOR i IN 1 .. cardinality(of_rules) LOOP
    SELECT t.ctid INTO row_at
    FROM state t WHERE t.rule = of_rules[i] AND t.key = of_keys[i] AND t.kind IS NOT NULL FOR NO KEY UPDATE;
    IF row_at IS NOT NULL THEN
      found_here := found_here + 1;
      UPDATE state t SET
        used = CASE WHEN t.kind = 'G' THEN t.used ELSE 0 END,
        before = CASE WHEN t.kind = 'G' THEN t.used WHEN t.kind = 'S' THEN 0 END,
        given_back = CASE WHEN t.kind = 'L' THEN 0 END
      WHERE t.ctid = row_at;
    END IF;
  END LOOP;
  RETURN ARRAY[clock_us(), found_here];
END
$$;
