//! What happened, as a stream. Proves that only durable facts are told, in the order of their records, to whom they concern;
//! that a listener who falls behind hears how many he lost and slows nobody; and that the stream ends with the runner.

use futures_util::StreamExt;
use journeyman::testing::Syncs;
use journeyman::{BreakerState, Cause, End, Event, EventFilter, Events, Happened, Health, Limits};

use crate::jobs::{HOUR, Log, MINUTE, SECOND, Step, runner, task, task_for, tasks, touchy};

/// What has been told so far.
fn told(events: &mut Events) -> Vec<Event> {
    let mut told = Vec::new();
    while let Some(Some(event)) = futures_util::FutureExt::now_or_never(events.next()) {
        told.push(event);
    }
    told
}

/// A listener may live on any thread.
fn is_send(_: &(impl Send + Sync + 'static)) {}

fn of_jobs(events: &[Event]) -> Vec<(String, Happened)> {
    let job = |event: &Event| if let Event::Job(job) = event { Some((job.id.to_string(), job.what)) } else { None };
    events.iter().filter_map(job).collect()
}

#[actix::test]
async fn the_story_of_a_job_is_told_in_the_order_of_its_records() {
    let log = Log::default();
    let t = runner(&log).await;
    let mut events = t.jobs().events(EventFilter::all());
    t.jobs().enqueue(task_for("host", "a", &[Step::Fail, Step::Defer(10), Step::Reject])).await.unwrap();
    t.run_until_idle(HOUR).await.unwrap();
    let told = told(&mut events);
    let whats: Vec<_> = of_jobs(&told).into_iter().map(|(_, what)| what).collect();
    let failed = Cause::Failed;
    assert_eq!(
        whats,
        [
            Happened::Enqueued,
            Happened::Selected,
            Happened::Requeued { cause: failed },
            Happened::Selected,
            Happened::Deferred,
            Happened::Selected,
            Happened::Ended { end: End::Rejected, cause: Some(failed) },
        ]
    );
    let seqs: Vec<_> = told.iter().map(|event| if let Event::Job(job) = event { job.seq } else { panic!("{event:?}") }).collect();
    assert!(seqs.is_sorted_by(|one, other| one < other), "{seqs:?}");
    assert!(!format!("{told:?}").contains("told to"), "no text of a fault");
    let Event::Job(first) = &told[0] else { panic!("{told:?}") };
    assert_eq!((first.kind.as_str(), first.target.as_ref().unwrap().as_str()), ("task", "host"));
}

#[actix::test]
async fn nothing_is_told_that_is_not_on_disk() {
    let log = Log::default();
    let t = runner(&log).await;
    let mut events = t.jobs().events(EventFilter::all());
    t.set_syncs(Syncs::WhenTold);
    let jobs = t.jobs();
    let mut call = std::pin::pin!(async { jobs.enqueue(task("a", &[Step::Ok])).await });
    assert!(t.drive(&mut call, SECOND).await.is_none());
    assert_eq!(told(&mut events), []);
    t.release_sync().await;
    assert_eq!(of_jobs(&told(&mut events)), [("0-1".to_owned(), Happened::Enqueued)]);
}

#[actix::test]
async fn a_listener_hears_what_he_asked_for() {
    let log = Log::default();
    let t = tasks(&log).circuit(touchy()).test().await.unwrap();
    let jobs = t.jobs();
    let mut of_two = jobs.events(EventFilter::all().id("0-2".parse().unwrap()));
    let mut of_host = jobs.events(EventFilter::all().target("down"));
    let mut of_kind = jobs.events(EventFilter::all().kind("letter"));
    jobs.enqueue(task("a", &[Step::Ok])).await.unwrap();
    let id = jobs.enqueue(task("b", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    jobs.cancel(id).await.unwrap();
    jobs.enqueue(task_for("down", "c", &[Step::Fail])).await.unwrap();
    t.advance(MINUTE).await;
    let two = [("0-2".to_owned(), Happened::Enqueued), ("0-2".to_owned(), Happened::Cancelled { was_running: false })];
    assert_eq!(of_jobs(&told(&mut of_two)), two);
    let host = told(&mut of_host);
    assert!(of_jobs(&host).iter().all(|(id, _)| id == "0-3") && host.len() > 3, "{host:?}");
    let open = |event: &&Event| matches!(event, Event::Breaker { state: BreakerState::Open, openings: 1, .. });
    assert_eq!(host.iter().filter(open).count(), 1, "{host:?}");
    assert_eq!(told(&mut of_kind), []);
}

#[actix::test]
async fn one_who_falls_behind_hears_how_many_he_lost_and_slows_nobody() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.events_kept = 8;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let jobs = t.jobs();
    let mut events = jobs.events(EventFilter::all());
    jobs.enqueue_all((0..100).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Ok])))).await.unwrap();
    t.run_until_idle(MINUTE).await.unwrap();
    let told = told(&mut events);
    let Event::Lagged(lost) = told[0] else { panic!("{told:?}") };
    assert_eq!(lost as usize + told.len() - 1, 300, "three of each job, heard or counted");
    assert_eq!(told.len() - 1, 8);
}

#[actix::test]
async fn listeners_come_and_go_and_the_last_one_hears_the_end() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    drop(jobs.events(EventFilter::all()));
    jobs.enqueue(task("a", &[Step::Ok])).await.unwrap();
    t.settle().await;
    let events = jobs.events(EventFilter::all());
    is_send(&events);
    jobs.enqueue(task("b", &[Step::Ok])).await.unwrap();
    t.shutdown(SECOND).await.unwrap();
    let heard: Vec<Event> = events.collect().await;
    assert_eq!(heard.len(), 3, "a stream of what happened while it was there: {heard:?}");
    assert_eq!(jobs.events(EventFilter::all()).next().await, None, "nothing more happens");
}

#[actix::test]
async fn the_end_of_the_runner_is_the_last_that_is_told() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.reopenings = 0;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let mut events = t.jobs().events(EventFilter::all());
    let mut named = t.jobs().events(EventFilter::all().kind("task"));
    t.kill("queue").await;
    t.advance(SECOND).await;
    let mut told = 0;
    while let Some(event) = events.next().await {
        assert!(matches!(event, Event::Health(Health::Red { .. })), "{event:?}");
        told += 1;
    }
    assert!(told > 0);
    assert_eq!(named.next().await, None);
}

#[actix::test]
async fn a_stream_goes_on_when_the_runner_reopens() {
    let log = Log::default();
    let t = runner(&log).await;
    let mut events = t.jobs().events(EventFilter::all());
    let mut named = t.jobs().events(EventFilter::all().kind("task"));
    t.kill("queue").await;
    t.advance(SECOND).await;
    let mut last = None;
    while last != Some(Event::Health(Health::Green)) {
        last = events.next().await;
        assert!(matches!(last, Some(Event::Health(_))), "{last:?}");
    }
    let id = t.jobs().enqueue(task("a", &[Step::Ok])).await.unwrap().id();
    assert!(matches!(named.next().await, Some(Event::Job(job)) if job.id == id));
}
