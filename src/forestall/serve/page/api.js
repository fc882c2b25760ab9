// Requests to the service, with its token and its errors.

let token = null; // In memory only: never stored, gone with the page.
let asking = null;
let askForToken = async () => null;

export class Refused extends Error {
  constructor(status, text, seconds) {
    super(text);
    this.status = status;
    this.seconds = seconds;
  }

  get passing() {
    return this.status === 429 || this.status === 503;
  }
}

export class Lost extends Error {
  constructor() {
    super("The service does not answer.");
    this.seconds = null;
  }

  get passing() {
    return true;
  }
}

export function onMissingToken(prompt) {
  askForToken = prompt;
}

export async function ask(path, body, signal) {
  for (;;) {
    const used = token;
    const response = await sent(path, body, signal);
    const told = await read(response);
    if (response.ok) return told;
    const text = told?.error ?? `The service answered ${response.status}.`;
    if (response.status !== 401) {
      const seconds = Number(response.headers.get("retry-after"));
      throw new Refused(response.status, text, seconds || null);
    }
    if (used === token) await newToken(used === null ? null : text);
  }
}

async function sent(path, body, signal) {
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  const options = { headers, signal, cache: "no-store", credentials: "omit" };
  if (body !== undefined) {
    options.method = "POST";
    headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  try {
    return await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Lost();
  }
}

async function read(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (response.ok) throw new Lost();
    return null;
  }
}

// Requests that fail together ask once.
async function newToken(complaint) {
  asking ??= askForToken(complaint).finally(() => (asking = null));
  token = await asking;
}
