-- Decide one request over levels that were charged before: the common case, in scalars and few statements.
--
-- The fast twin of `decide_any`, with its parameters and reply (decide.sql), and held to it by the same tests. It
-- decides where one request is to be charged, all its keys have rows, and each is a level of the same numbers
-- whose clock has not gone back; no line's patience, no shadow, no strict rule. Whatever else is met, nothing
-- has been written, and `decide_any` goes on: what is locked by then it locks again, in the same order.

CREATE OR REPLACE FUNCTION decide(
  of_rules bytea[], of_keys bytea[], numbers bigint[], calendars text[], edges_us bigint[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  size CONSTANT int := numbers[10];
  is_told CONSTANT boolean := numbers[6] = 1;
  now_us bigint;
  held record;
  places tid[];
  rooms bigint[];
  qs bigint[];
  ps bigint[];
  levels bigint[];
  sinces bigint[];
  givens bigint[];
  instants bigint[];
  k int;
  n int := 11;
  level bigint;
  drain bigint;
  elapsed_us bigint;
  passes boolean := true;
  reply bigint[];
  verdicts boolean[];
BEGIN
  IF numbers[8] <> 1 OR numbers[3] <> 0 OR numbers[9] <> 1 OR size <> cardinality(of_rules)
    OR numbers[1] <> version_number() OR numbers[5] <> 0
    OR current_setting('transaction_isolation') <> 'read committed'
    OR current_setting('transaction_read_only') = 'on'
  THEN
    RETURN decide_any(of_rules, of_keys, numbers, calendars, edges_us);
  END IF;
  FOR place IN 1 .. size LOOP
    SELECT t.ctid, t.room, t.q, t.p, t.used, t.at_us, t.busy_since_us, t.given_back INTO held
    FROM state t WHERE t.rule = of_rules[place] AND t.key = of_keys[place] AND t.kind = 'L'
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      RETURN decide_any(of_rules, of_keys, numbers, calendars, edges_us);
    END IF;
    places[place] := held.ctid;
    rooms[place] := held.room;
    qs[place] := held.q;
    ps[place] := held.p;
    levels[place] := held.used;
    instants[place] := held.at_us;
    sinces[place] := held.busy_since_us;
    givens[place] := held.given_back;
  END LOOP;
  now_us := CASE WHEN is_told THEN numbers[7] ELSE clock_us() END;

  FOR c IN 1 .. size LOOP
    k := numbers[n];
    drain := ps[k];
    elapsed_us := now_us - instants[k];
    IF elapsed_us < 0 OR numbers[n + 1] > 1 OR numbers[n + 2] <> rooms[k] OR numbers[n + 3] <> qs[k]
      OR numbers[n + 4] <> drain OR numbers[n + 7] = 0 OR numbers[n + 8] >= 0 OR numbers[n + 9] <> 0
      OR numbers[n + 11] <> 0
    THEN
      RETURN decide_any(of_rules, of_keys, numbers, calendars, edges_us);
    END IF;
    level := levels[k];  -- as level_advance says
    IF drain <> 0 AND level <> 0 THEN
      level := CASE WHEN elapsed_us < (level + drain - 1) / drain THEN level - drain * elapsed_us ELSE 0 END;
      levels[k] := level;
    END IF;
    IF level = 0 THEN
      givens[k] := 0;
    END IF;
    verdicts[c] := level <= rooms[k] AND numbers[n + 7] <= (rooms[k] - level) / (qs[k] / 1000);
    passes := passes AND verdicts[c];
    n := n + 13;
  END LOOP;

  reply := ARRAY[now_us, 0];
  n := 11;
  FOR c IN 1 .. size LOOP
    k := numbers[n];
    IF passes THEN
      IF levels[k] = 0 AND now_us > sinces[k] THEN  -- as begun_us says
        sinces[k] := now_us;
      ELSIF levels[k] = 0 THEN
        sinces[k] := sinces[k] + 1;
      END IF;
      level := levels[k] + numbers[n + 7] * (qs[k] / 1000);
      drain := ps[k];
      UPDATE state t SET
        used = level, at_us = now_us, busy_since_us = sinces[k], given_back = givens[k],
        sweep_at_us = CASE
          WHEN drain = 0 THEN 9223372036854775807
          ELSE (
            (CASE WHEN is_told THEN clock_us() + 3600000000 ELSE now_us + 60000000 END + (level + drain - 1) / drain)
            / 60000000 + 1
          ) * 60000000
        END
      WHERE t.ctid = places[k];
      reply := reply || ARRAY[3, level, now_us, sinces[k], givens[k], 0];
    ELSE
      reply := reply || ARRAY[
        CASE WHEN verdicts[c] THEN 1 ELSE 0 END, levels[k], now_us, sinces[k], givens[k], 0
      ];
    END IF;
    n := n + 13;
  END LOOP;
  RETURN reply;
END
$$;
