-- The law of core/log.py: every spend remembered, so that any stretch of a window is exact.
--
-- State "G1 capacity window first past base total at ago", padded with spaces to 128 bytes, then rows of 16
-- bytes, two doubles each (struct "<dd"): an instant, and all that was spent up to and with it. The rows
-- from `first` to before `past` count, and what they add to `base` is used. Spending writes one row and the
-- head; rows that no longer count are left out when they are more than the others.
-- In a state, `added` are rows that are not stored yet; they follow those that are.
-- Part of the function `rarer`; returns the law. The functions are those of core/log.py.

local HEAD, ROW, FEW, AT_ONCE = 128, 16, 8, 32

local function of(text, kind)
  local capacity, window, past = match(text, '^G1 (%S+) (%S+) ()')
  capacity, window = whole(capacity), whole(window)
  if capacity and window and capacity > 0 and window > 0 then
    return { kind = kind, text = format('G1 %.0f %.0f ', capacity, window), capacity = capacity, grain = 1,
      window = window }, past
  end
end

local function row(key, index)
  local start = HEAD + ROW * index
  local text = ask('GETRANGE', key, start, start + ROW - 1)
  if #text == ROW then
    return struct.unpack('<dd', text)
  end
end

local function read(law, value, from, key)
  local first, past, base, total, at, ago = match(value, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) ', from)
  first, past, base, total, at, ago = whole(first), whole(past), whole(base), whole(total), whole(at), whole(ago)
  if not (first and past and base and total and at and ago)
    or first < 0 or first > past or base < 0 or base > total then
    return nil
  end
  local state = { law = law, key = key, first = first, past = past, base = base, total = total,
    at = at, since = at - ago, newest = at, added = {} }
  if first == past then
    return base == total and state or nil
  end
  local instant, sum = row(key, past - 1)
  if instant and sum == total then
    state.newest = instant
    return state
  end
end

-- The first row from `low` on, up to `high`, whose number in the column has reached the goal, or passed it.
local function bisect(key, low, high, column, goal, must_pass)
  while low < high do
    local middle = floor((low + high) / 2)
    local number = select(column, row(key, middle))
    if number < goal or must_pass and number == goal then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function is_fresh(law, state)
  return state.total == state.base
end

local function used(law, state)
  return state.total - state.base
end

-- The words of the reply: used, at, ago, the instant that frees enough for the cost, the newest instant.
local function numbers(law, state, cost)
  local frees = state.newest
  local excess = cost and cost <= law.capacity and used(law, state) + cost - law.capacity or 0
  if excess > 0 then
    local goal = state.base + excess
    local index = bisect(state.key, state.first, state.past, 2, goal)
    if index < state.past then
      frees = row(state.key, index)
    else
      for i = #state.added, 1, -1 do
        if state.added[i][2] >= goal then
          frees = state.added[i][1]
        end
      end
    end
  end
  return format(FIVE,
    state.total - state.base, state.at, state.at - state.since, frees, state.newest)
end

local function holding(law, amount, at, since)
  amount = min(amount, MOST)
  return { law = law, first = 0, past = 0, base = 0, total = amount, at = at, since = since, newest = at,
    added = amount > 0 and { { at, amount } } or {} }
end

-- Leaves out the stored rows up to the instant, in steps that grow: mostly there are few.
local function drop(state, until_us)
  local key, low, step = state.key, state.first, 1
  local high = state.past
  while low + step <= high do
    local instant, total = row(key, low + step - 1)
    if instant > until_us then
      high = low + step - 1
      break
    end
    low, step, state.base = low + step, step * 2, total
  end
  local first = bisect(key, low, high, 1, until_us, true)
  if first > low then
    state.base = select(2, row(key, first - 1))
  end
  state.first = first
end

local function advance(law, state)
  if is_fresh(law, state) then
    return holding(law, 0, now, state.since)
  end
  local at = clock(state.at)
  if at < state.at then
    return holding(law, used(law, state), at, state.since + 1)
  end
  if state.first < state.past then
    drop(state, at - law.window)
  end
  if state.first == state.past then
    local added = state.added
    while added[1] and added[1][1] <= at - law.window do
      state.base = table.remove(added, 1)[2]
    end
    if not added[1] then
      return holding(law, 0, at, state.since)
    end
  end
  state.at = at
  return state
end

local function fits(law, state, cost)
  return cost <= law.capacity - used(law, state)
end

local function spend(law, state, cost)
  if cost > 0 then
    if is_fresh(law, state) then
      state.since = begun(state.at, state.since)
    end
    state.total, state.newest = state.total + cost, state.at
    state.added[#state.added + 1] = { state.at, state.total }
  end
  return state
end

-- `most`: the highest sum that a debt may reach.
local function overdraw(law, state, cost, most)
  return spend(law, state, min(cost, max(0, most - used(law, state))))
end

local function reset_after_us(law, state)
  return is_fresh(law, state) and 0 or state.newest + law.window - now
end

-- Rows as text, with so much more in each total.
local function shifted(text, more)
  if more == 0 then
    return text
  end
  local parts = {}
  for start = 1, #text, ROW * AT_ONCE do
    local part = string.sub(text, start, start + ROW * AT_ONCE - 1)
    local layout = '<' .. string.rep('dd', #part / ROW)
    local numbers = { struct.unpack(layout, part) }
    for i = 2, #part / 8, 2 do
      numbers[i] = numbers[i] + more
    end
    parts[#parts + 1] = struct.pack(layout, unpack(numbers, 1, #part / 8))
  end
  return table.concat(parts)
end

local function rows(key, first, past, more)
  if first == past then
    return ''
  end
  return shifted(ask('GETRANGE', key, HEAD + ROW * first, HEAD + ROW * past - 1), more)
end

-- Takes it out of the entry that was made at that instant; moves whichever rows are fewer, before or after.
local function give_back(law, state, receipt)
  if state.first == state.past or state.since ~= receipt.since then
    return 0, state
  end
  local key, first, past = state.key, state.first, state.past
  local low = bisect(key, first, past, 1, receipt.at)
  local high = bisect(key, low, past, 1, receipt.at, true)
  if low == high then
    return 0, state
  end
  local before, sum = state.base, select(2, row(key, high - 1))
  if low > first then
    before = select(2, row(key, low - 1))
  end
  local returned = min(receipt.units, sum - before)
  returned = returned - returned % 1000
  local rest = sum - before - returned
  local rest_rows = rest > 0 and 1 or 0
  local gone = high - low - rest_rows
  if high == past then
    state.newest = rest > 0 and receipt.at or low > first and row(key, low - 1) or state.at
  end
  if past - high <= low - first then
    state.moved_to = low
    state.moved = rest > 0 and struct.pack('<dd', receipt.at, before + rest) or ''
    state.moved = state.moved .. rows(key, high, past, -returned)
    state.past, state.total = past - gone, state.total - returned
  else
    state.moved_to = first + gone
    state.moved = rows(key, first, low, returned)
    if rest > 0 then
      state.moved = state.moved .. struct.pack('<dd', receipt.at, sum)
    end
    state.first, state.base = first + gone, state.base + returned
  end
  return returned, state
end

local function head(law, state, first, past, base, total)
  local text = law.text .. format(SIX, first, past, base, total, state.at, state.at - state.since)
  return text .. string.rep(' ', HEAD - #text)
end

local function write(law, state, key)
  local added = {}
  for i, entry in ipairs(state.added) do
    added[i] = struct.pack('<dd', entry[1], entry[2])
  end
  added = table.concat(added)
  local first, past, base = state.first, state.past, state.base
  local stays = past - first
  local fresh_in_us = reset_after_us(law, state)
  local is_due = first > stays and first >= FEW or base > EXACT / 2
  if stays == 0 or is_due and not state.moved then
    local text = rows(key, first, past, -base) .. shifted(added, -base)
    return kept(key, head(law, state, 0, #text / ROW, 0, state.total - base) .. text, fresh_in_us)
  end
  local place, text = past, added
  if state.moved then
    place, text = state.moved_to, state.moved
  end
  if text ~= '' then
    local done = ask('SETRANGE', key, HEAD + ROW * place, text)
    if type(done) == 'table' and done.err then
      return done.err
    end
  end
  ask('SETRANGE', key, 0, head(law, state, first, past + #added / ROW, base, state.total))
  ask('PEXPIRE', key, ceil(fresh_in_us / 1000) + allowance_ms)
end

return {
  letter = 'G', of = of, read = read, numbers = numbers, advance = advance, fits = fits, spend = spend,
  overdraw = overdraw, is_fresh = is_fresh, used = used, reset_after_us = reset_after_us,
  give_back = give_back, holding = holding, write = write, taken = used
}
