-- The law of core/level.py: one number a key. Bucket, meter and queue share it.
--
-- State "L1 room q p level at ago given": `room` is the capacity in units, `q` units make a token, `p`
-- drain in a microsecond; `ago` is how long before `at` the busy period began (negative where a clock
-- stepped back), `given` what was given back in it. `given` stops at 2^53 - 1: whoever then gives back
-- gets no more than what the law grants when all that others gave back counts.
-- Part of the function `rarer`; returns the law. The functions are those of core/level.py, in its order;
-- a state is changed in place.

local Level = { letter = 'L' }

-- A law from its numbers; nil if no limit has them.
function Level.of(words)
  local room, q, p = whole(words[2]), whole(words[3]), whole(words[4])
  if room and q and p and room > 0 and p >= 0 and q >= 1000 and q % 1000 == 0 and room % (q / 1000) == 0 then
    local text = format('L1 %.0f %.0f %.0f ', room, q, p)
    return { kind = Level, text = text, room = room, q = q, p = p, grain = q / 1000, capacity = room / (q / 1000) }
  end
end

-- The state that the words of a value say; nil if they say none.
function Level.read(law, words)
  local level, at, ago, given = wholes(words, 5, 8)
  if level and level >= 0 and given >= 0 then
    return { law = law, level = level, at = at, since = at - ago, given = given }
  end
end

function Level.numbers(law, state)
  return format('%.0f %.0f %.0f %.0f', state.level, state.at, state.at - state.since, state.given)
end

function Level.advance(law, state)
  if state.level == 0 then
    state.at, state.given = now, 0
  elseif now >= state.at then
    local gone = law.p * (now - state.at)
    state.level, state.at = gone < state.level and state.level - gone or 0, now
    if state.level == 0 then
      state.given = 0
    end
  elseif clock(state.at) ~= state.at then
    state.at, state.since, state.given = now, state.since + 1, 0
  end
  return state
end

-- `most`: the highest level at which the cost fits, for a caller with patience.
function Level.fits(law, state, cost, most)
  return state.level <= (most or law.room - cost)
end

function Level.spend(law, state, cost)
  if state.level == 0 then
    state.since, state.given = begun(state.at, state.since), 0
  end
  state.level = state.level + cost
  return state
end

-- `most`: the highest level that a debt may reach.
function Level.overdraw(law, state, cost, most)
  most = max(state.level, most)
  Level.spend(law, state, cost)
  state.level = min(state.level, most)
  return state
end

function Level.is_fresh(law, state)
  return state.level == 0
end

function Level.used(law, state)
  return div_ceil(state.level, law.grain)
end

-- What a change of this number is counted in: units.
function Level.taken(law, state)
  return state.level
end

function Level.reset_after_us(law, state)
  if state.level == 0 then
    return 0
  end
  return law.p > 0 and div_ceil(state.level, law.p) + max(0, state.at - now) or nil
end

function Level.give_back(law, state, receipt)
  if state.level == 0 or state.since ~= receipt.since then
    return 0, state
  end
  local returned = min(receipt.units, state.level)
  if not receipt.is_full then
    local by_others = state.given < MOST and state.given - receipt.given - receipt.own or MOST
    local undrained = max(receipt.cost, receipt.mark - by_others)
    local gone = law.p * max(0, state.at - receipt.at)
    undrained = gone < undrained and undrained - gone or 0
    returned = min(returned, max(0, undrained - receipt.own))
  end
  state.level, state.given = state.level - returned, min(state.given + returned, MOST)
  return returned, state
end

function Level.holding(law, used, at, since)
  local level = used <= div_floor(MOST, law.grain) and used * law.grain or MOST
  return { law = law, level = level, at = at, since = since, given = 0 }
end

function Level.text(law, state)
  return law.text .. Level.numbers(law, state)
end

function Level.write(law, state, key)
  return kept(key, Level.text(law, state), Level.reset_after_us(law, state))
end

return Level
