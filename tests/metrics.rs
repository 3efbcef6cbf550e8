//! What a recorder is told. Proves that each metric has its name, unit and description, counts what happened, and says nothing
//! private in its labels.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use journeyman::testing::Syncs;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::jobs::{HOUR, Log, MINUTE, Step, task, task_for, tasks, touchy};

/// Keeps all that it is told, by the name of the metric and its labels.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Pages>>);

#[derive(Default)]
struct Pages {
    described: BTreeMap<String, Option<Unit>>,
    values: BTreeMap<String, Vec<f64>>,
}

struct Entry(Book, String);

impl Entry {
    fn write(&self, change: impl FnOnce(&mut Vec<f64>)) {
        change(self.0.0.lock().unwrap().values.entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Entry {
    fn increment(&self, by: u64) {
        self.write(|values| *values = vec![values.first().unwrap_or(&0.0) + by as f64]);
    }

    fn absolute(&self, value: u64) {
        self.write(|values| *values = vec![value as f64]);
    }
}

impl GaugeFn for Entry {
    fn increment(&self, by: f64) {
        self.write(|values| *values = vec![values.first().unwrap_or(&0.0) + by]);
    }

    fn decrement(&self, by: f64) {
        self.write(|values| *values = vec![values.first().unwrap_or(&0.0) - by]);
    }

    fn set(&self, value: f64) {
        self.write(|values| *values = vec![value]);
    }
}

impl HistogramFn for Entry {
    fn record(&self, value: f64) {
        self.write(|values| values.push(value));
    }
}

impl Book {
    fn entry(&self, key: &Key) -> Arc<Entry> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Entry(self.clone(), [key.name(), &labels.join(",")].join(" ").trim().to_owned()))
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, text: &str) {
        assert!(text.ends_with('.'), "{text}");
        self.0.lock().unwrap().described.insert(name.as_str().to_owned(), unit);
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.0.lock().unwrap().values.get(name).cloned().unwrap_or_default()
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().values.keys().cloned().collect()
    }
}

impl Recorder for Book {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.entry(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.entry(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.entry(key))
    }
}

/// Runs the test with a book that hears everything of this thread, where all actors of a test runner live.
fn with_book<F: Future<Output = ()>>(test: impl FnOnce(Book) -> F) {
    let book = Book::default();
    metrics::with_local_recorder(&book, || actix_rt::System::new().block_on(test(book.clone())));
}

#[test]
fn each_metric_counts_what_happened() {
    with_book(|book| async move {
        let log = Log::default();
        let t = tasks(&log).circuit(touchy()).test().await.unwrap();
        t.set_syncs(Syncs::After(std::time::Duration::from_millis(5)));
        let jobs = t.jobs();
        let scripts: [&[Step]; 4] = [&[Step::Sleep(1500)], &[Step::Fail, Step::Reject], &[Step::Defer(10), Step::Ok], &[Step::Fail]];
        let all = (0..).zip(scripts).map(|(n, script)| jobs.enqueue(task(&format!("a{n}"), script)));
        t.drive(jobs.enqueue_all(all), HOUR).await.unwrap().unwrap();
        t.run_until_idle(HOUR).await.unwrap();
        let waits = t.drive(jobs.enqueue(task("b", &[Step::Ok])).delay(HOUR).into_future(), MINUTE).await.unwrap().unwrap();
        t.drive(jobs.cancel(waits.id()), MINUTE).await.unwrap().unwrap();
        t.drive(jobs.enqueue(task_for("host", "c", &[Step::Fail])).into_future(), MINUTE).await.unwrap().unwrap();
        t.advance(MINUTE / 2).await;
        let count = |name: &str| book.values(name).first().copied();
        assert_eq!(count("journeyman_enqueued_total kind=task"), Some(6.0));
        assert_eq!(count("journeyman_ended_total kind=task,end=done"), Some(2.0));
        assert_eq!(count("journeyman_ended_total kind=task,end=rejected"), Some(1.0));
        assert_eq!(count("journeyman_ended_total kind=task,end=spent"), Some(1.0));
        assert_eq!(count("journeyman_ended_total kind=task,end=cancelled"), Some(1.0));
        assert_eq!(count("journeyman_requeued_total kind=task"), Some(5.0), "one, two, and two of the target");
        assert!(count("journeyman_deferred_total kind=task") >= Some(1.0));
        assert_eq!(count("journeyman_attempts_total kind=task"), Some(log.total() as f64));
        assert_eq!(count("journeyman_breaker_openings_total"), Some(1.0));
        let stats = jobs.stats();
        assert_eq!((count("journeyman_pending"), count("journeyman_running")), (Some(1.0), Some(0.0)));
        assert_eq!(count("journeyman_held"), Some(stats.held as f64));
        assert_eq!(count("journeyman_journal_bytes"), Some(stats.bytes as f64));
        assert_eq!(count("journeyman_payload_memory_bytes"), Some(stats.payload_memory as f64));
        assert_eq!((count("journeyman_payload_disk_bytes"), stats.payload_disk), (Some(0.0), 0));
        assert_eq!(count("journeyman_health"), Some(0.0));
        let ran = book.values("journeyman_attempt_seconds kind=task");
        assert_eq!((ran.len(), ran.iter().sum::<f64>()), (log.total(), 1.5), "by the virtual clock");
        assert_eq!(book.values("journeyman_append_seconds").len() as u64, stats.syncs);
        assert_eq!(book.values("journeyman_batch_records").iter().sum::<f64>(), stats.records as f64);
        assert!(book.values("journeyman_batch_bytes").iter().all(|bytes| *bytes > 0.0));
        t.kill("queue").await;
        assert_eq!(count("journeyman_health"), Some(2.0));
    });
}

#[test]
fn each_metric_is_described_and_no_other_is_told() {
    with_book(|book| async move {
        let log = Log::default();
        let t = tasks(&log).test().await.unwrap();
        t.jobs().enqueue(task_for("canary", "canary", &[Step::Fail])).key("canary").meta("canary", "canary").await.unwrap();
        t.run_until_idle(HOUR).await.unwrap();
        let described = book.0.lock().unwrap().described.clone();
        assert_eq!(described.len(), 17, "{described:?}");
        assert_eq!(described["journeyman_append_seconds"], Some(Unit::Seconds));
        assert_eq!(described["journeyman_journal_bytes"], Some(Unit::Bytes));
        for name in book.names() {
            let metric = name.split(' ').next().unwrap();
            assert!(described.contains_key(metric), "{metric}");
            assert!(!name.contains("canary"), "{name}");
        }
    });
}
