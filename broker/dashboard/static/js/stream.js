// One stream of events a browser: HTTP/1.1 allows six connections to a server, and a seventh tab would hang.
// The tab that holds a lock has the stream and passes on what comes; hidden tabs let go of it.
const TYPES = ["job", "progress", "share", "tier", "state", "nodes", "endpoints", "reset"];
const LONGEST_PAUSE = 10_000;
const QUIET = 15_000; // after which a broker that says nothing is asked whether it is there
const ANSWER = 5_000;

/**
 * Listen to the broker's events.
 * @param {{message: function(string, object), opened: function(), lost: function()}} to `opened` is called whenever
 *   what happened in between may be missing, so that everything has to be asked for anew.
 */
export function openStream(to) {
  const channel = "BroadcastChannel" in window ? new BroadcastChannel("tiercel") : null;
  let letGo = null; // ends this tab's turn
  let asked = null; // aborts waiting for a turn
  let closed = false;

  const pass = (kind, type, content) => {
    if (kind === "message") to.message(type, content);
    else to[kind]();
  };
  const tellAll = (kind, type, content) => {
    channel?.postMessage({ kind, type, content });
    pass(kind, type, content);
  };
  if (channel) {
    channel.onmessage = ({ data }) => {
      if (document.hidden || closed) return;
      // One that comes later asks whoever has the stream whether it is there.
      if (data.kind === "hello") letGo?.answer();
      else if (!letGo) pass(data.kind, data.type, data.content);
    };
  }

  function lead() {
    return new Promise((done) => {
      const source = connect(tellAll);
      letGo = Object.assign(
        () => {
          source.close();
          letGo = null;
          done();
        },
        { answer: () => source.isOpen() && channel.postMessage({ kind: "opened" }) },
      );
    });
  }

  function want() {
    if (closed || letGo || asked) return;
    if (!navigator.locks || !channel) {
      lead(); // a stream of its own where tabs cannot agree
      return;
    }
    asked = new AbortController();
    channel.postMessage({ kind: "hello" });
    navigator.locks
      .request("tiercel-stream", { signal: asked.signal }, () => {
        asked = null;
        return closed || document.hidden ? undefined : lead();
      })
      .catch(() => {});
  }

  function stop() {
    asked?.abort();
    asked = null;
    letGo?.();
  }

  const onVisibility = () => (document.hidden ? stop() : want());
  document.addEventListener("visibilitychange", onVisibility);
  if (!document.hidden) want();
  return {
    close() {
      closed = true;
      document.removeEventListener("visibilitychange", onVisibility);
      stop();
      channel?.close();
    },
  };
}

function connect(tell) {
  let source = null;
  let timer = 0;
  let pause = 500;
  let ended = false;
  let opened = false;
  let heard = performance.now(); // when something last came
  let there = true; // whether the broker answers, as far as was looked

  function open() {
    source = new EventSource("/api/v1/events");
    source.onopen = () => {
      pause = 500;
      [opened, there, heard] = [true, true, performance.now()];
      tell("opened");
    };
    source.onerror = () => {
      if (ended) return;
      opened = false;
      tell("lost");
      // The browser tries again by itself after a broken connection, and gives up after a refusal.
      if (source.readyState !== EventSource.CLOSED) return;
      clearTimeout(timer);
      timer = setTimeout(open, pause);
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    };
    for (const type of TYPES) {
      source.addEventListener(type, ({ data }) => {
        heard = performance.now();
        found(true);
        tell("message", type, data ? JSON.parse(data) : {});
      });
    }
  }

  /** A broker that hangs keeps its connections: nothing but an answer tells it from one that has nothing to say. */
  async function look() {
    if (!opened || performance.now() - heard < QUIET) return;
    const answer = await fetch("/api/v1/session", { signal: AbortSignal.timeout(ANSWER) }).catch(() => null);
    if (!ended) found(answer !== null);
  }

  function found(itIsThere) {
    if (itIsThere === there) return;
    there = itIsThere;
    tell(there ? "opened" : "lost");
  }

  open();
  const looking = setInterval(look, ANSWER);
  return {
    isOpen: () => opened,
    close() {
      ended = true;
      clearTimeout(timer);
      clearInterval(looking);
      source.close();
    },
  };
}
