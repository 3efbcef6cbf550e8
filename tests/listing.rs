//! Jobs page by page. Proves that pages together hold each job once, whatever comes and goes between them, that filters mean
//! what they say, and that no call looks at more than its share.

use journeyman::{JobId, JobState, Jobs, Query, StateFilter};

use crate::jobs::{HOUR, Log, SECOND, Step, runner, task, task_for, tasks, touchy};

async fn ids(jobs: &Jobs, query: Query) -> Vec<String> {
    let (mut ids, mut query) = (Vec::new(), query);
    loop {
        let page = jobs.list(query.clone()).await.unwrap();
        ids.extend(page.jobs.iter().map(|info| info.id.to_string()));
        let Some(next) = page.next else { return ids };
        query = query.after(next);
    }
}

async fn waiting(jobs: &Jobs, count: usize) -> Vec<JobId> {
    let all = (0..count).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Ok])).delay(HOUR));
    jobs.enqueue_all(all).await.unwrap().iter().map(|receipt| receipt.id()).collect()
}

#[actix::test]
async fn pages_hold_each_job_once_in_the_order_of_their_numbers() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    assert!(jobs.list(Query::new()).await.unwrap().jobs.is_empty());
    let stored: Vec<_> = waiting(&jobs, 250).await.iter().map(ToString::to_string).collect();
    let first = jobs.list(Query::new()).await.unwrap();
    assert_eq!((first.jobs.len(), first.next.map(|id| id.to_string())), (100, Some("0-100".to_owned())), "a hundred unless asked");
    for limit in [1, 7, 250, 251, usize::MAX] {
        assert_eq!(ids(&jobs, Query::new().limit(limit)).await, stored, "{limit}");
    }
    let whole = jobs.list(Query::new().limit(250)).await.unwrap();
    assert!(whole.next.is_none(), "nothing is behind it");
    assert_eq!(jobs.list(Query::new().limit(0)).await.unwrap().jobs.len(), 1, "a page has room for one");
    assert!(jobs.list(Query::new().after("1-0".parse().unwrap())).await.unwrap().jobs.is_empty(), "there is one partition");
}

#[actix::test]
async fn jobs_that_come_and_go_between_two_pages_move_no_other() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    let stored = waiting(&jobs, 10).await;
    let page = jobs.list(Query::new().limit(4)).await.unwrap();
    let next = page.next.unwrap();
    for gone in [0, 3, 4, 8] {
        jobs.cancel(stored[gone]).await.unwrap();
    }
    let come = waiting(&jobs, 1).await;
    let rest: Vec<_> = jobs.list(Query::new().after(next)).await.unwrap().jobs.iter().map(|info| info.id).collect();
    assert_eq!(rest, [stored[5], stored[6], stored[7], stored[9], come[0]]);
}

#[actix::test]
async fn filters_mean_what_they_say() {
    let log = Log::default();
    let t = tasks(&log).circuit(touchy()).test().await.unwrap();
    let jobs = t.jobs();
    jobs.enqueue(task("0-1 runs", &[Step::Hang])).await.unwrap();
    jobs.enqueue(task("0-2 waits", &[Step::Ok])).delay(HOUR).await.unwrap();
    for _ in 3..=5 {
        jobs.enqueue(task_for("down", "fails", &[Step::Fail])).await.unwrap();
    }
    t.advance(10 * SECOND).await;
    let held = ids(&jobs, Query::new().state(StateFilter::Held)).await;
    assert!(!held.is_empty() && held.len() as u64 == jobs.stats().held, "{held:?}");
    assert_eq!(ids(&jobs, Query::new().state(StateFilter::Running)).await, ["0-1"]);
    let pending = ids(&jobs, Query::new().state(StateFilter::Pending)).await;
    assert!(pending.contains(&"0-2".to_owned()) && held.iter().all(|id| !pending.contains(id)), "{pending:?}");
    assert_eq!(ids(&jobs, Query::new().target("down")).await, ["0-3", "0-4", "0-5"]);
    assert_eq!(ids(&jobs, Query::new().target("up")).await, [""; 0]);
    assert_eq!(ids(&jobs, Query::new().kind("task")).await.len(), 5);
    assert_eq!(ids(&jobs, Query::new().kind("letter")).await, [""; 0]);
    let page = jobs.list(Query::new().state(StateFilter::Held).limit(1)).await.unwrap();
    assert!(matches!(page.jobs[0].state, JobState::Held { .. }));
}

#[actix::test]
async fn one_call_looks_at_its_share_and_says_where_to_go_on() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    for _ in 0..3 {
        waiting(&jobs, 5_000).await;
    }
    let rare = jobs.enqueue(task_for("rare", "x", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    let first = jobs.list(Query::new().target("rare")).await.unwrap();
    assert_eq!((first.jobs.len(), first.next.unwrap().to_string()), (0, "0-10000".to_owned()));
    assert_eq!(ids(&jobs, Query::new().target("rare")).await, [rare.to_string()]);
}
