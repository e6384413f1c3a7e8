-- A charge that decide.lua does not decide itself: what is found of it, and how it is settled.
--
-- The end of the function `rarer` in the script "decide"; returns its two functions.

-- The state, whether the cost fits, and the line that answers the whole request if it has failed.
local function found(text, cost, key, value, way, most, epoch, windows)
  local law = law_of(text, windows)
  local state, must_write, failure = current(law, key, value, way, epoch)
  if failure then
    return nil, false, told(failure)
  elseif law.is_missed then
    law.is_missed = false
    return nil, false, '?'
  end
  state.must_write = must_write or nil
  state.epoch = value == '' and epoch or nil
  return state, law.kind.fits(law, state, cost, most)
end

-- The record of a charge after the verdict, with everything written that has to be; the error, if any.
local function settled(state, cost, key, fits, is_stored, passes, take)
  local law, failure = state.law, nil
  local kind, is_charged = law.kind, passes and fits and cost > 0
  local must_write = is_charged or take and cost > 0 and state.must_write
  if take and cost > 0 and state.epoch then
    failure = set_epoch(state.epoch)
  end
  if is_charged then
    state = kind.spend(law, state, cost)
  end
  local said = kind.numbers(law, state, not fits and cost)
  if must_write and not failure then
    failure = kind.write(law, state, key, said)
  elseif take and is_stored then
    expire(key, law, state)
  end
  return (is_charged and '3 ' or fits and '1 ' or '0 ') .. said, failure and told(failure)
end

return { found = found, settled = settled }
