// Questions of one kind, one at a time: whatever is newest is asked next.

const SLOWEST = 8;

export class Latest {
  // send: question, signal -> answer. interrupt: give up an answer no longer wanted.
  constructor({ send, interrupt = false }) {
    Object.assign(this, { send, interrupt });
    this.newest = null;
    this.wanted = null;
    this.running = null;
    this.tries = 0;
    this.seconds = 0;
  }

  // show: answer, question, whether it is the newest. fail: error, question.
  answer({ show, fail }) {
    Object.assign(this, { show, fail });
  }

  ask(question) {
    this.newest = question;
    this.wanted = question;
    clearTimeout(this.timer);
    if (this.interrupt) this.running?.abort();
    this.next();
  }

  forget() {
    this.newest = null;
    this.wanted = null;
    clearTimeout(this.timer);
    if (this.interrupt) this.running?.abort();
  }

  get waits() {
    return this.running !== null || this.wanted !== null;
  }

  async next() {
    if (this.running || this.wanted === null) return;
    const question = this.wanted;
    const running = new AbortController();
    this.wanted = null;
    this.running = running;
    const start = performance.now();
    const sent = this.send(question, running.signal);
    const [answer, error] = await sent.then((told) => [told, null], (fault) => [null, fault]);
    this.running = null;
    this.next();
    if (error !== null) this.failed(error, question);
    else this.succeeded(answer, question, performance.now() - start);
  }

  succeeded(answer, question, milliseconds) {
    this.seconds = milliseconds / 1000;
    this.tries = 0;
    if (this.newest !== null) this.show(answer, question, question === this.newest);
  }

  failed(error, question) {
    if (error.name === "AbortError" || question !== this.newest) return;
    this.fail(error, question);
    if (!error.passing) return;
    const seconds = error.seconds ?? Math.min(SLOWEST, 2 ** this.tries);
    this.tries += 1;
    this.timer = setTimeout(() => {
      this.wanted = question;
      this.next();
    }, 1000 * seconds);
  }
}
