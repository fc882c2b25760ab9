// A pasted row, read as JSON, as name=value pairs or as a table with its header.

export class RowError extends Error {}

export function readRow(text, fields) {
  const given = cells(text.trim(), fields);
  const names = fields.map((field) => field.name);
  const absent = names.filter((name) => !(name in given));
  if (absent.length) {
    throw new RowError(
      `Expected a value for ${names.join(", ")}; missing: ${absent.join(", ")}. ` +
        "Add it, or paste the header with the row.",
    );
  }
  const row = {};
  for (const field of fields) row[field.name] = readCell(given[field.name], field);
  return { row, ignored: Object.keys(given).filter((name) => !names.includes(name)) };
}

function cells(text, fields) {
  if (text === "") throw new RowError("Expected one row; got nothing. Paste it above.");
  if (text.startsWith("{") || text.startsWith("[")) return fromJson(text);
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  if (/^\s*[^=\t,;]+=/.test(lines[0])) return fromPairs(text);
  return fromTable(lines, fields);
}

function fromJson(text) {
  let told;
  try {
    told = JSON.parse(text);
  } catch {
    throw new RowError("Expected JSON after the first brace; it is not complete or not valid. Copy the whole object.");
  }
  const rows = Array.isArray(told) ? told : [told];
  if (rows.length !== 1 || rows[0] === null || typeof rows[0] !== "object") {
    throw new RowError(`Expected one object; got ${rows.length} values. Paste one row.`);
  }
  const row = rows[0];
  return Array.isArray(row.contexts) && row.contexts.length === 1 ? row.contexts[0] : row;
}

function fromPairs(text) {
  const found = Object.create(null);
  for (const part of text.split(/[,;&\n\t]+/)) {
    if (part.trim() === "") continue;
    const at = part.indexOf("=");
    if (at < 0) {
      throw new RowError(`Expected name=value, with commas between; got ${quoted(part.trim())}.`);
    }
    found[part.slice(0, at).trim()] = unquoted(part.slice(at + 1).trim());
  }
  return found;
}

function fromTable(lines, fields) {
  const mark = ["\t", ";", ","].find((each) => lines[0].includes(each)) ?? "\t";
  const [first, second, ...more] = lines.map((line) => split(line, mark));
  if (more.length) {
    throw new RowError(`Expected one row below the header; got ${more.length + 1}. Paste one row.`);
  }
  const names = second ? first : fields.map((field) => field.name);
  const values = second ?? first;
  if (names.length !== values.length) {
    throw new RowError(
      `Expected ${names.length} values (${names.join(", ")}); got ${values.length}. ` +
        "Paste the header with the row.",
    );
  }
  return Object.assign(Object.create(null), Object.fromEntries(names.map((name, i) => [name, values[i]])));
}

function split(line, mark) {
  const found = [];
  let cell = "";
  let inside = false;
  for (const sign of line) {
    if (sign === '"') inside = !inside;
    if (sign === mark && !inside) {
      found.push(cell);
      cell = "";
    } else cell += sign;
  }
  return [...found, cell].map((each) => unquoted(each.trim()));
}

function unquoted(text) {
  const whole = text.length > 1 && text.startsWith('"') && text.endsWith('"');
  return whole ? text.slice(1, -1).replaceAll('""', '"') : text;
}

function readCell(value, field) {
  return field.categories ? readLevel(value, field) : readNumber(value, field);
}

function readLevel(value, field) {
  const levels = field.categories;
  const written = String(value).trim();
  const same =
    levels.find((level) => level === value) ??
    levels.find((level) => String(level) === written) ??
    levels.find((level) => String(level).toLowerCase() === written.toLowerCase()) ??
    levels.find((level) => typeof level === "number" && Number(written) === level);
  if (same !== undefined) return same;
  throw new RowError(
    `Expected one of ${levels.map(String).join(", ")} for ${field.name}; got ${quoted(written)}. Choose one of them.`,
  );
}

function readNumber(value, field) {
  const number = typeof value === "number" ? value : Number(String(value).trim() || "?");
  if (typeof value !== "boolean" && Number.isFinite(number)) return number;
  const comma = /^-?\d+,\d+$/.test(String(value)) ? " Write a point, not a comma." : " Correct it.";
  throw new RowError(`Expected a number for ${field.name}; got ${quoted(String(value))}.${comma}`);
}

function quoted(text) {
  return `'${text.length > 40 ? `${text.slice(0, 40)}…` : text}'`;
}
