-- The law of core/windows.py that counts in fixed windows, of one length from the epoch or of a calendar.
--
-- State "F1 capacity calendar counted at ago start end": `calendar` is "even:LENGTH_US" or "month:ZONE" and
-- the like, `counted` are thousandths of a token in the window from `start` to `end`.
-- Time zones are not known here: the windows of a calendar come with the charge, as four boundaries. An
-- instant outside them makes `is_missed` true, and then nothing is charged.
-- Part of the function `rarer`; returns the law. The functions are those of core/windows.py.

local function of(text, kind)
  local capacity, calendar, past = match(text, '^F1 (%S+) (%a+:%S+) ()')
  capacity = whole(capacity)
  if capacity and capacity > 0 then
    local unit, of = match(calendar, '^(%a+):(.*)$')
    local length = unit == 'even' and whole(match(of, '^%d+$')) or nil
    if length and length > 0 or unit == 'day' or unit == 'week' or unit == 'month' or unit == 'year' then
      return { kind = kind, text = format('F1 %.0f %s ', capacity, calendar), capacity = capacity, grain = 1,
        length = length }, past
    end
  end
end

local function read(law, value, from)
  local counted, at, ago, start, past = match(value, '^(%S+) (%S+) (%S+) (%S+) (%S+)$', from)
  counted, at, ago, start, past = whole(counted), whole(at), whole(ago), whole(start), whole(past)
  if counted and at and ago and start and past and counted >= 0 then
    return { law = law, counted = counted, at = at, since = at - ago, start = start, past = past }
  end
end

local function numbers(law, state)
  return format(FIVE,
    state.counted, state.at, state.at - state.since, state.start, state.past)
end

-- The window that holds the instant. Of a law that a stored state names, only the count and its end matter.
local function window(law, at)
  if law.length then
    local start = aligned(at, law.length)
    return start, start + law.length
  end
  local bounds = law.windows
  for i = 1, bounds and #bounds - 1 or 0 do
    if at >= bounds[i] and at < bounds[i + 1] then
      return bounds[i], bounds[i + 1]
    end
  end
  law.is_missed = true
  return at, at + 1
end

local function holding(law, amount, at, since)
  local start, past = window(law, at)
  return { law = law, counted = min(amount, MOST), at = at, since = since, start = start, past = past }
end

local function advance(law, state)
  if state.counted == 0 then
    return holding(law, 0, now, state.since)
  end
  local at = clock(state.at)
  if at < state.at then
    return holding(law, state.counted, at, state.since + 1)
  end
  if at < state.past then
    state.at = at
    return state
  end
  return holding(law, 0, at, state.since)
end

local function fits(law, state, cost)
  return cost <= law.capacity - state.counted
end

local function spend(law, state, cost)
  if state.counted == 0 then
    state.since = begun(state.at, state.since)
  end
  state.counted = state.counted + cost
  return state
end

-- `most`: the highest count that a debt may reach.
local function overdraw(law, state, cost, most)
  most = max(state.counted, most)
  spend(law, state, cost)
  state.counted = min(state.counted, most)
  return state
end

local function is_fresh(law, state)
  return state.counted == 0
end

local function used(law, state)
  return state.counted
end

local function reset_after_us(law, state)
  return state.counted > 0 and state.past - now or 0
end

local function give_back(law, state, receipt)
  local returned = state.since == receipt.since and min(receipt.units, state.counted) or 0
  state.counted = state.counted - returned
  return returned, state
end

local function write(law, state, key, said)
  return kept(key, law.text .. said, reset_after_us(law, state))
end

return {
  letter = 'F', of = of, read = read, numbers = numbers, advance = advance, fits = fits, spend = spend,
  overdraw = overdraw, is_fresh = is_fresh, used = used, reset_after_us = reset_after_us,
  give_back = give_back, holding = holding, write = write, taken = used, window = window
}
