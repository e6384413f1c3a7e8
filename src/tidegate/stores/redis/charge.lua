-- A charge that decide.lua does not decide itself: what is found of it, and how it is settled.
--
-- The end of the function `rarer` in the script "decide"; returns its two functions.

-- The charge with its state and whether it fits; with `failure` set, the whole request has failed.
local function found(text, cost, key, value, way, most, epoch, windows)
  local law = law_of(text, windows)
  local state, must_write, failure = current(law, key, value, way, epoch)
  if failure or law.is_missed then
    return { failure = failure and told(failure) or '?' }
  end
  return { law = law, state = state, cost = cost, key = key, fits = law.kind.fits(law, state, cost, most),
    must_write = must_write, is_stored = value ~= '', epoch = epoch }
end

-- The record of a charge after the verdict, with everything written that has to be; the error, if any.
local function settled(charge, passes, take)
  local law, state, cost, key = charge.law, charge.state, charge.cost, charge.key
  local kind, is_charged = law.kind, passes and charge.fits and cost > 0
  if is_charged then
    state = kind.spend(law, state, cost)
  end
  local record = (is_charged and '3 ' or charge.fits and '1 ' or '0 ')
    .. kind.numbers(law, state, not charge.fits and cost)
  local failure
  if take and cost > 0 then
    failure = set_epoch(charge.epoch)
  end
  if failure then
    return nil, told(failure)
  end
  if is_charged or take and cost > 0 and charge.must_write then
    failure = kind.write(law, state, key)
  elseif take and charge.is_stored then
    expire(key, law, state)
  end
  return record, failure and told(failure)
end

return { found = found, settled = settled }
