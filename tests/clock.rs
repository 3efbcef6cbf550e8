//! Jumps of the wall clock, to and fro, while a runner runs, between two runs, and followed by a reopening in the same process:
//! each against everything that waits. What waits for a span waits by the steady clock while its process lives, and by the wall
//! clock from one process to the next; what waits for an instant, and the window of a key, go by the wall clock always. No jump
//! fires more at once than the catch-up limit, and no date overflows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use journeyman::testing::TestRunner;
use journeyman::{Circuit, JobState, Limits, Policy};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, Task, task, task_for, tasks};
use crate::support::figures::held;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// How late or early anything may be.
const SLACK: Duration = Duration::from_secs(2);
/// Everything begins here, and the clock jumps ten minutes later.
const JUMP_AT: Duration = Duration::from_secs(600);

/// Where the wall clock is set to.
#[derive(Clone, Copy, Debug)]
enum Jump {
    Back(Duration),
    To1970,
    Ahead(Duration),
}

const JUMPS: [Jump; 6] = [
    Jump::Back(HOUR),
    Jump::Back(YEAR.saturating_mul(10)),
    Jump::Back(YEAR.saturating_mul(50)),
    Jump::To1970,
    Jump::Ahead(HOUR),
    Jump::Ahead(YEAR.saturating_mul(10)),
];

impl Jump {
    /// A clock shows nothing before 1970.
    fn of(self, now: SystemTime) -> SystemTime {
        match self {
            Self::Back(span) => (now - span).max(UNIX_EPOCH),
            Self::To1970 => UNIX_EPOCH,
            Self::Ahead(span) => now + span,
        }
    }
}

/// When it jumps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// While the runner runs.
    Running,
    /// While it runs, and then the queue dies and is replaced.
    BeforeAReopening,
    /// After a crash, before the next start.
    BetweenRuns,
}

/// What waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Subject {
    Delay,
    Instant,
    /// A job at an instant that has run and asked for an hour more.
    Deferral,
    Backoff,
    RetryAfter,
    Breaker,
    Timeout,
    Deadline,
    KeyWindow,
}

/// By which clock it waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Steady,
    Wall,
    /// It is forgotten, and so over at once.
    Nothing,
    /// It is forgotten, but the job that waits for it is not: it has been due from the beginning, by the wall clock.
    ItsOwnDue,
}

/// The table: by which clock each waits, whenever the jump comes.
const TABLE: [(Subject, By, By, By); 9] = [
    // while running, before a reopening, between runs
    (Subject::Delay, By::Steady, By::Steady, By::Wall),
    (Subject::Instant, By::Wall, By::Wall, By::Wall),
    (Subject::Deferral, By::Steady, By::Steady, By::Wall),
    (Subject::Backoff, By::Steady, By::Steady, By::Wall),
    (Subject::RetryAfter, By::Steady, By::Steady, By::Wall),
    (Subject::Breaker, By::Steady, By::Nothing, By::ItsOwnDue),
    // A crash ends the attempt: its next one begins at once.
    (Subject::Timeout, By::Steady, By::Steady, By::Nothing),
    (Subject::Deadline, By::Steady, By::Steady, By::Wall),
    (Subject::KeyWindow, By::Wall, By::Wall, By::Wall),
];

struct Case {
    t: TestRunner<Log>,
    log: Log,
    subject: Subject,
    passed: Duration,
}

impl Case {
    /// Something that is over in an hour, in a runner whose wall clock shows `origin`.
    async fn begin(subject: Subject, origin: Option<SystemTime>) -> Self {
        let log = Log::default();
        let circuit = Circuit::default().threshold(1).cooldown(HOUR);
        let mut t = tasks(&log).circuit(circuit).test_with(Default::default(), 7).await.unwrap();
        if let Some(origin) = origin {
            t.crash_and_reopen_at(origin).await.unwrap();
        }
        let began = t.now();
        let (jobs, many) = (t.jobs(), Policy::default().attempts(1_000).base(HOUR).cap(HOUR));
        let x = |script: &[Step]| task("x", script);
        let receipt = match subject {
            Subject::Delay => jobs.enqueue(x(&[Step::Ok])).delay(HOUR).await,
            Subject::Instant => jobs.enqueue(x(&[Step::Ok])).at(began + HOUR).await,
            Subject::Deferral => jobs.enqueue(x(&[Step::Defer(3_600_000), Step::Ok])).at(began).await,
            Subject::Backoff => jobs.enqueue(x(&[Step::Fail, Step::Ok])).policy(many).await,
            Subject::RetryAfter => jobs.enqueue(x(&[Step::RetryAfter(3_600_000), Step::Ok])).policy(many).await,
            Subject::Breaker => {
                jobs.enqueue(task_for("t", "failing", &[Step::Fail])).policy(many.attempts(1)).await.unwrap();
                t.settle().await;
                jobs.enqueue(task_for("t", "x", &[Step::Ok])).await
            }
            Subject::Timeout => jobs.enqueue(x(&[Step::Hang, Step::Ok])).policy(many.timeout(HOUR).base(Duration::ZERO)).await,
            // Every five minutes, until the next one would come at its deadline.
            Subject::Deadline => jobs.enqueue(x(&[Step::RetryAfter(300_000)])).policy(many.deadline(HOUR + 5 * MINUTE)).await,
            Subject::KeyWindow => jobs.enqueue(x(&[Step::Ok])).key("k").key_window(HOUR).await,
        };
        t.settle().await;
        let mut case = Self { t, log, subject, passed: Duration::ZERO };
        if subject == Subject::Backoff {
            // Its jitter may have made it shorter: then an hour is reckoned from earlier.
            let JobState::Pending { due } = case.t.jobs().get(receipt.unwrap().id()).await.unwrap().unwrap().state else {
                panic!("it waits")
            };
            case.passed = HOUR - due.duration_since(began).unwrap();
        } else {
            receipt.unwrap();
        }
        case
    }

    async fn pass(&mut self, until: Duration) {
        if let Some(span) = until.checked_sub(self.passed) {
            self.t.advance(span).await;
            self.passed = until;
        }
    }

    async fn is_over(&self) -> bool {
        let runs = self.log.runs_of("x");
        match self.subject {
            Subject::Delay | Subject::Instant | Subject::Breaker => runs > 0,
            Subject::Deferral | Subject::Backoff | Subject::RetryAfter | Subject::Timeout => runs > 1,
            Subject::Deadline => self.t.jobs().stats().late > 0,
            Subject::KeyWindow => self.t.jobs().enqueue(task("again", &[Step::Ok])).key("k").await.unwrap().is_new(),
        }
    }
}

#[actix::test]
async fn each_jump_moves_what_goes_by_the_wall_clock_and_nothing_else() {
    let origins = [None, Some(UNIX_EPOCH), Some(UNIX_EPOCH + Duration::from_secs(253_402_300_799))];
    let (mut cases, mut wrong) = (0, Vec::new());
    for origin in origins {
        for (subject, running, reopening, between) in TABLE {
            for (when, by) in [(When::Running, running), (When::BeforeAReopening, reopening), (When::BetweenRuns, between)] {
                for jump in JUMPS {
                    let name = format!("{subject:?}, {jump:?}, {when:?}, from {origin:?}");
                    let mut case = Case::begin(subject, origin).await;
                    case.pass(JUMP_AT.max(case.passed)).await;
                    let (at, before) = (case.passed, case.t.now());
                    let after = jump.of(before);
                    match when {
                        When::Running => case.t.set_wall_clock(after).await,
                        When::BeforeAReopening => {
                            case.t.set_wall_clock(after).await;
                            case.t.kill("queue").await;
                            case.pass(at + SECOND).await;
                        }
                        When::BetweenRuns => case.t.crash_and_reopen_at(after).await.unwrap(),
                    }
                    // How long it waits from the jump on, for an hour in all, and by a clock that was moved.
                    let left = HOUR - at;
                    let expected = at
                        + match (by, after.duration_since(before)) {
                            (By::Nothing, _) => Duration::ZERO,
                            (By::Steady, _) => left,
                            (By::Wall, Ok(ahead)) => left.saturating_sub(ahead),
                            (By::Wall, Err(back)) => left + back.duration(),
                            (By::ItsOwnDue, back) => back.err().map_or(Duration::ZERO, |back| back.duration().saturating_sub(at)),
                        };
                    case.pass(expected.saturating_sub(SLACK)).await;
                    if expected > at + SLACK && case.is_over().await {
                        wrong.push(format!("{name}: too early"));
                    }
                    case.pass(expected + SLACK).await;
                    if !case.is_over().await {
                        wrong.push(format!("{name}: too late"));
                    }
                    cases += 1;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(cases, 3 * 9 * 3 * 6);
    held("F22", cases, "jumps of the clock in simulation");
}

/// A runner that catches up by ten each second.
async fn slow_to_catch_up(log: &Log, capacity: u32) -> TestRunner<Log> {
    let mut limits = Limits::default();
    (limits.catch_up, limits.capacity) = (10, capacity);
    tasks(log).limits(limits).test().await.unwrap()
}

async fn store(t: &TestRunner<Log>, count: usize, at: impl Fn(usize) -> SystemTime) {
    let jobs = t.jobs();
    let all = (0..count).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Ok])).at(at(n)));
    jobs.enqueue_all(all).await.unwrap();
}

#[actix::test]
async fn a_jump_ahead_fires_what_it_made_due_in_portions_also_over_a_reopening() {
    for (ahead, reopens) in [(HOUR, false), (10 * YEAR, false), (HOUR, true), (10 * YEAR, true)] {
        let log = Log::default();
        let t = slow_to_catch_up(&log, 64).await;
        let noon = t.now() + 30 * MINUTE;
        store(&t, 100, |n| noon + Duration::from_millis(n as u64)).await;
        t.set_wall_clock(t.now() + ahead).await;
        for second in 0..10 {
            let most = 10 * (second + 1) + 1;
            assert!(log.total() <= most, "{} after {second} s, {ahead:?}, {reopens}", log.total());
            if reopens && second == 3 {
                t.kill("queue").await;
            }
            t.advance(SECOND).await;
        }
        t.advance(5 * SECOND).await;
        assert_eq!(log.total(), 100, "{ahead:?}, {reopens}");
        // What becomes due by itself is no catch-up.
        store(&t, 100, |_| t.now() + SECOND).await;
        t.advance(SECOND).await;
        assert_eq!(log.total(), 200);
    }
}

#[actix::test]
async fn a_clock_that_is_set_to_and_fro_fires_no_more_than_one_that_is_set_once() {
    let log = Log::default();
    let t = slow_to_catch_up(&log, 64).await;
    let (early, late) = (t.now(), t.now() + 2 * HOUR);
    store(&t, 200, |_| early + HOUR).await;
    for second in 0..5 {
        for _ in 0..10 {
            t.set_wall_clock(late).await;
            t.set_wall_clock(early).await;
        }
        assert!(log.total() <= 10 * (second + 1) + 1, "{} after {second} s", log.total());
        t.advance(SECOND).await;
    }
}

#[actix::test]
async fn after_a_jump_between_runs_no_more_start_than_there_are_units() {
    let log = Log::default();
    let mut t = slow_to_catch_up(&log, 4).await;
    let jobs = t.jobs();
    let (at, slow) = (t.now() + HOUR, [Step::Sleep(1_000)]);
    jobs.enqueue_all((0..50).map(|n| jobs.enqueue(task(&n.to_string(), &slow)).at(at))).await.unwrap();
    jobs.enqueue_all((50..100).map(|n| jobs.enqueue(task(&n.to_string(), &slow)).delay(HOUR))).await.unwrap();
    let after = t.now() + 10 * YEAR;
    t.crash_and_reopen_at(after).await.unwrap();
    assert_eq!(log.total(), 4);
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!((log.total(), log.most_live()), (100, 4));
}

/// A job that was asked for at an instant and has put itself off waits for a span, which no jump moves: also after a restart, when
/// nothing but its due tells.
#[actix::test]
async fn what_was_put_off_from_an_instant_waits_for_a_span_also_after_a_restart() {
    for step in [Step::Defer(3_600_000), Step::RetryAfter(3_600_000)] {
        let log = Log::default();
        let mut t = tasks(&log).test().await.unwrap();
        t.jobs().enqueue(task("put off", &[step, Step::Ok])).at(t.now()).await.unwrap();
        t.jobs().enqueue(task("at noon", &[Step::Ok])).at(t.now() + HOUR).await.unwrap();
        t.settle().await;
        t.crash_and_reopen().await.unwrap();
        t.set_wall_clock(t.now() + 10 * YEAR).await;
        t.advance(SECOND).await;
        assert_eq!(log.names(), ["put off", "at noon"], "{step:?}: only the instant has come");
        t.advance(HOUR).await;
        assert_eq!(log.names(), ["put off", "at noon", "put off"], "{step:?}");
    }
}

/// A queue goes on with its work while the clock is anywhere, and its times stay times.
#[actix::test]
async fn no_date_stops_the_queue_or_comes_to_an_overflow() {
    let edges = [UNIX_EPOCH, UNIX_EPOCH + Duration::from_millis(1), UNIX_EPOCH + 8029 * YEAR, UNIX_EPOCH + Duration::from_secs(1 << 42)];
    let log = Log::default();
    let mut t = tasks(&log).test().await.unwrap();
    let mut stored = 0;
    for from in edges {
        for to in edges {
            t.crash_and_reopen_at(from).await.unwrap();
            for span in [Duration::ZERO, MINUTE, Duration::MAX] {
                let policy =
                    Policy::default().attempts(2).base(span).cap(span).timeout(span.max(SECOND)).deadline(span).retry_after_cap(span);
                let name = format!("{from:?} {to:?} {span:?}");
                let job = |step, n: u32| Task { name: format!("{name} {step:?} {n}"), ..task("", &[step, Step::Ok]) };
                for step in [Step::Ok, Step::Fail, Step::RetryAfter(u64::MAX), Step::Defer(u64::MAX)] {
                    let jobs = t.jobs();
                    jobs.enqueue(job(step, 0)).policy(policy).key("k").key_window(span).await.unwrap();
                    jobs.enqueue(job(step, 1)).policy(policy).delay(span).await.unwrap();
                    jobs.enqueue(job(step, 2)).policy(policy).at(from.checked_add(span).unwrap_or(to)).await.unwrap();
                    stored += 3;
                }
            }
            t.set_wall_clock(to).await;
            t.advance(HOUR).await;
            let done = t.jobs().stats().done;
            t.jobs().enqueue(task("plain", &[Step::Ok])).await.unwrap();
            t.settle().await;
            assert!(t.jobs().stats().done > done, "work goes on from {from:?} to {to:?}");
            let page = t.jobs().list(journeyman::Query::new().limit(1_000)).await.unwrap();
            assert!(page.jobs.iter().all(|info| !format!("{info:?}").is_empty()));
            for info in page.jobs {
                t.jobs().cancel(info.id).await.unwrap();
            }
        }
    }
    assert!(stored > 500);
    t.run_until_idle(DAY).await.unwrap();
}
