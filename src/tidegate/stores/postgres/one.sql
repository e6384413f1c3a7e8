-- Take from one level that was charged before: the commonest decision, in the fewest statements.
--
-- The fast twin of `decide` (decide.sql), and held to it by the same tests: for one request with one enforced
-- charge on a bucket or meter, without patience. Parameters: the version of the schema, rule and key as there, the
-- numbers of the law, the cost in thousandths, and perhaps an instant. The reply is that of `decide`; or null, and
-- nothing is done, where the key was never charged, its limit has changed, or the clock has gone back.

CREATE OR REPLACE FUNCTION take_one(
  version bigint, of_rule bytea, of_key bytea, of_room bigint, of_q bigint, of_p bigint, cost bigint, told_us bigint
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  found_now record;
  now_us bigint;
  level bigint;
  reply bigint[];
BEGIN
  IF version <> version_number() OR current_setting('transaction_isolation') <> 'read committed'
    OR current_setting('transaction_read_only') = 'on'
  THEN
    now_us := checked_call(ARRAY[version, 0, 0, 0, 0]);
  END IF;
  SELECT t.ctid AS place, t.used, t.at_us, t.busy_since_us, t.given_back INTO found_now
  FROM state t
  WHERE t.rule = of_rule AND t.key = of_key AND t.kind = 'L' AND t.room = of_room AND t.q = of_q AND t.p = of_p
  FOR NO KEY UPDATE;
  now_us := coalesce(told_us, clock_us());
  IF found_now.place IS NULL OR now_us < found_now.at_us THEN
    RETURN NULL;
  END IF;
  level := drained(found_now.used, of_p, now_us - found_now.at_us);
  IF level > of_room OR cost > (of_room - level) / (of_q / 1000) THEN
    RETURN ARRAY[
      now_us, 0, 0, level, now_us, found_now.busy_since_us,
      CASE WHEN level = 0 THEN 0 ELSE found_now.given_back END, 0
    ];
  END IF;
  UPDATE state t SET
    used = level + cost * (of_q / 1000),
    at_us = now_us,
    busy_since_us = CASE WHEN level = 0 THEN begun_us(now_us, t.busy_since_us) ELSE t.busy_since_us END,
    given_back = CASE WHEN level = 0 THEN 0 ELSE t.given_back END,
    sweep_at_us = CASE
      WHEN of_p = 0 THEN 9223372036854775807
      ELSE (
        (CASE WHEN told_us IS NULL THEN now_us + 60000000 ELSE clock_us() + 3600000000 END
          + (level + cost * (of_q / 1000) + of_p - 1) / of_p) / 60000000 + 1
      ) * 60000000
    END
  WHERE t.ctid = found_now.place
  RETURNING ARRAY[now_us, 0, 3, t.used, t.at_us, t.busy_since_us, t.given_back, 0] INTO reply;
  RETURN reply;
END
$$;
