// What this page knows of the broker: one state, loaded once and kept up to date by the stream of events.
// Changes are put together and told once a frame, so a hidden tab, which has no frames, does nothing.
import { get, onSignedOut } from "./api.js";
import { isOver } from "./format.js";
import { useEffect, useRef, useState } from "./html.js";
import { openStream } from "./stream.js";

const JOBS_KEPT = 500;
const NEWS_KEPT = 60;

const state = {
  phase: "loading", // loading | signed-out | signed-in
  session: null,
  connection: "connecting", // connecting | live | lost
  problem: "", // why the first load failed
  status: null,
  nodes: null,
  endpoints: null,
  jobs: new Map(),
  policy: null, // who decides, and which others there are
  jobsLoaded: false,
  loads: 0, // grows whenever what views have asked for may be out of date
  news: [], // the newest events first
  said: "",
  signInProblem: "",
};

const listeners = new Set();
const eventListeners = new Set();
let pending = [];
let frame = 0;
let stream = null;

export const now = () => state;

/** Change the state; everybody who looks at what changed is told in the next frame. */
export function change(patch) {
  Object.assign(state, patch);
  schedule();
}

function schedule() {
  if (!frame) frame = requestAnimationFrame(tell);
}

function tell() {
  frame = 0;
  const events = pending;
  pending = [];
  if (events.length) takeIn(events);
  for (const listener of [...listeners]) listener();
  if (events.length) for (const listener of [...eventListeners]) listener(events);
}

/** What `select` finds in the state; the component is drawn again when that is another thing. */
export function useLive(select) {
  const [, draw] = useState(0);
  const seen = useRef({});
  seen.current = { select, value: select(state) };
  useEffect(() => {
    const look = () => {
      if (!Object.is(seen.current.select(state), seen.current.value)) draw((count) => count + 1);
    };
    listeners.add(look);
    look();
    return () => listeners.delete(look);
  }, []);
  return seen.current.value;
}

/** Call `action` with the events of each frame while the component is there. */
export function useEvents(action) {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    const call = (events) => latest.current(events);
    eventListeners.add(call);
    return () => eventListeners.delete(call);
  }, []);
}

const NEWS = new Set(["share", "tier", "state"]);

function takeIn(events) {
  let { jobs } = state;
  const news = [];
  for (const { type, content } of events) {
    if (type === "job") {
      if (jobs === state.jobs) jobs = new Map(jobs);
      jobs.set(content.id, content);
    } else if (type === "nodes") state.nodes = content;
    else if (type === "endpoints") state.endpoints = content;
    else if (NEWS.has(type)) news.unshift({ type, ...content });
    else if (type === "reset") load();
  }
  if (jobs !== state.jobs) state.jobs = bounded(jobs);
  if (news.length) state.news = [...news, ...state.news].slice(0, NEWS_KEPT);
}

function bounded(jobs) {
  for (const [id, job] of jobs) {
    if (jobs.size <= JOBS_KEPT) break;
    if (isOver(job)) jobs.delete(id);
  }
  return jobs;
}

/** Remember jobs that a view has asked for; what the stream told since is newer than neither. */
export function keepJobs(found) {
  const jobs = new Map(state.jobs);
  for (const job of found) jobs.set(job.id, job);
  change({ jobs: bounded(jobs) });
}

/** Ask for everything anew; of who has no tenant, an operator, not for jobs and endpoints: it would be refused. */
export async function load() {
  const { tenant } = state.session ?? {};
  try {
    const [status, nodes, listing, endpoints] = await Promise.all([
      get("status"),
      get("nodes"),
      tenant ? get("jobs?state=active&limit=200") : { jobs: [] },
      tenant ? get("endpoints") : [],
    ]);
    const over = [...state.jobs].filter(([, job]) => isOver(job));
    const active = listing.jobs.map((job) => [job.id, job]);
    change({
      status,
      nodes,
      endpoints,
      jobs: new Map([...over, ...active]),
      jobsLoaded: true,
      loads: state.loads + Number(state.jobsLoaded),
      problem: "",
    });
  } catch (error) {
    if (error.status !== 401) change({ problem: error.message });
  }
  get("policy").then(
    (policy) => change({ policy }),
    () => {},
  );
}

/** Find out who is signed in, and begin to listen. */
export async function begin() {
  try {
    signedIn(await get("session"));
  } catch (error) {
    if (error.status === 401) return;
    change({ problem: error.message });
    setTimeout(begin, 2000);
  }
}

export function signedIn(session) {
  change({ phase: "signed-in", session, problem: "", signInProblem: "" });
  stream ??= openStream({
    message: receive,
    opened: () => {
      change({ connection: "live" });
      load();
    },
    lost: () => {
      change({ connection: "lost" });
      get("session").catch(() => {}); // does the broker still know us?
    },
  });
}

/** Take in an event of the stream, in the next frame. */
export function receive(type, content) {
  pending.push({ type, content });
  schedule();
}

export function signedOut() {
  stream?.close();
  stream = null;
  change({
    phase: "signed-out",
    session: null,
    jobs: new Map(),
    nodes: null,
    endpoints: null,
    jobsLoaded: false,
    news: [],
  });
}

onSignedOut(signedOut);
