-- What is stored of a key as it is now under a law: read, carried over if the limit has changed, advanced.
--
-- Part of the function `rarer`. `makers` makes the law of each letter, and carry.lua once something has to be
-- carried over; current() is that of core/compose.py. A value that cannot be read counts as a state of a
-- changed limit with everything used now: never an error, never credit. "N1" is fresh by any law (forget.lua).
--
-- Strict charges: the epoch is the instant since which this store has lost nothing. An absent key may have
-- been lost before it, so it counts as one that was used up at the epoch, and has drained since. Where there
-- is no epoch it is now, and that is written as 1 at least: an epoch of 0 or less says that nothing was ever
-- lost, so that an absent key is fresh, however slowly its rate would have filled it since 1970.

local kinds, laws, epochs, unset, carry = {}, {}, {}, {}, nil

-- The law that a text begins with, and where its numbers end; nil if there is none.
local function law_in(text)
  local letter = match(text, '^([LFSG])1 ')
  if letter then
    kinds[letter] = kinds[letter] or makers[letter]()
    return kinds[letter].of(text, kinds[letter])
  end
end

-- The law that a charge's text says. `windows`: the boundaries of a calendar around now, as text.
local function law_of(text, windows)
  local law = laws[text]
  if not law then
    law = law_in(text)
    laws[text] = law
  end
  if windows and windows ~= '' and law.told ~= windows then
    law.told, law.windows, law.is_missed = windows, {}, false
    for bound in string.gmatch(windows, '%S+') do
      law.windows[#law.windows + 1] = tonumber(bound)
    end
  end
  return law
end

-- The state that a value says, with the law that wrote it; nil if it says none.
local function read(value, key)
  local law, from = law_in(value)
  return law and law.kind.read(law, value, from, key)
end

-- The state of an absent key under a strict charge; whether it was moved back; the error, if any.
local function since_epoch(law, key)
  if not epochs[key] then
    local text = ask('GETRANGE', key, 0, 31)
    if text.err then
      return nil, nil, text.err
    end
    epochs[key] = whole(text)
    if not epochs[key] then
      epochs[key], unset[key] = max(1, now), true
    end
  end
  local epoch, kind = epochs[key], law.kind
  if epoch - now > STEP_US then
    return kind.holding(law, law.capacity, now, epoch + 1), true
  end
  if epoch <= 0 or kind.letter == 'F' and epoch < kind.window(law, now) then
    return kind.holding(law, 0, now, epoch)
  end
  return kind.advance(law, kind.holding(law, law.capacity, epoch, epoch))
end

-- The state now; whether a refusal must keep it; the error, if any.
local function current(law, key, value, way, epoch)
  local kind = law.kind
  if value == '' then
    if epoch then
      return since_epoch(law, epoch)
    end
    return kind.holding(law, 0, now, now - 1)
  end
  if value == 'N1' then
    return kind.holding(law, 0, now, now - 1)
  end
  local state
  if find(value, law.text, 1, true) == 1 then
    state = kind.read(law, value, #law.text + 1, key)
  else
    state = read(value, key)
  end
  if not state then
    return kind.holding(law, law.capacity, now, now), true
  end
  local at, is_changed = state.at, state.law.text ~= law.text
  if is_changed then
    carry = carry or makers.carry()
    state = carry(state, law, way)
  end
  state.law = law
  state = kind.advance(law, state)
  state.is_carried = is_changed
  return state, is_changed or state.at < at
end

-- Makes the epoch now if there is none; the error, if any.
local function set_epoch(key)
  if key and unset[key] then
    local done = ask('SET', key, format('%.0f', max(1, now)))
    if done.err then
      return done.err
    end
    unset[key] = nil
  end
end

-- Gives a key that has no expiry the one of this state; not where what is stored is still another law's.
local function expire(key, law, state)
  local fresh_in_us = not state.is_carried and law.kind.reset_after_us(law, state)
  if fresh_in_us and ask('PTTL', key) == -1 then
    ask('PEXPIRE', key, ceil(max(0, fresh_in_us) / 1000) + allowance_ms)
  end
end
