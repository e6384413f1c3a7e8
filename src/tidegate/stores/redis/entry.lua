-- An entry of adjust.lua: given back, or owed on top.
--
-- The end of the function `rarer` in the script "adjust"; returns its two functions.

-- The units that came back. A state of another law, or of another busy period, returns nothing.
local function given_back(text, key, value, what)
  if value == '' then
    return '0'
  end
  local law, state = law_of(text), read(value, key)
  if not state then
    expire(key, law, law.kind.holding(law, law.capacity, now, now))
    return '0'
  end
  local own = state.law
  state = own.kind.advance(own, state)
  local returned = 0
  if own.text == law.text then
    local receipt = {}
    receipt.units, receipt.own, receipt.is_full, receipt.cost, receipt.at, receipt.since, receipt.mark,
      receipt.given = match(what, '^back (%d+) (%-?%d+) (%d) (%d+) (%-?%d+) (%-?%d+) (%d+) (%d+)$')
    for name, number in pairs(receipt) do
      receipt[name] = name ~= 'given' and tonumber(number) or number
    end
    receipt.is_full = receipt.is_full == 1
    returned, state = own.kind.give_back(law, state, receipt)
  end
  if returned == 0 then
    expire(key, own, state)
    return '0'
  end
  local failure = own.kind.write(law, state, key, own.kind.numbers(law, state))
  return failure and told(failure) or format('%.0f', returned)
end

-- The units by which the level went up, as a negative number; at most `most` are owed in all.
local function owed(text, key, value, cost, most, way, epoch, windows)
  local law = law_of(text, windows)
  local state, _, failure = current(law, key, value, way, epoch)
  if failure or law.is_missed then
    return failure and told(failure) or '?'
  end
  local kind = law.kind
  local before = kind.taken(law, state)
  state = kind.overdraw(law, state, cost, most)
  local more = kind.taken(law, state) - before
  failure = set_epoch(epoch)
  if failure then
    return told(failure)
  end
  if more == 0 then
    if value ~= '' then
      expire(key, law, state)
    end
    return '0'
  end
  failure = kind.write(law, state, key, kind.numbers(law, state))
  return failure and told(failure) or format('%.0f', -more)
end

return { given_back = given_back, owed = owed }
