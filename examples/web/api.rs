//! What the service understands, and which status says what. Every refusal says whether asking again can help.

use std::fmt;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::error::JsonPayloadError;
use actix_web::http::StatusCode;
use actix_web::http::header::{LOCATION, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse, ResponseError, web};
use journeyman::{CallError, EnqueueError, Found, Health, JobEnd, JobId, JobInfo, JobState, Jobs};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::note::Note;

pub(crate) fn routes(service: &mut web::ServiceConfig) {
    service
        .app_data(web::JsonConfig::default().error_handler(|error, _| Refused::Body(error).into()))
        .route("/jobs", web::post().to(accept))
        .route("/jobs/{id}", web::get().to(find))
        .route("/health", web::get().to(health))
        .route("/stats", web::get().to(stats));
}

/// The body of `POST /jobs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    text: String,
    #[serde(default)]
    delay_seconds: u64,
}

/// The 202 comes when the job is on disk. With an `Idempotency-Key` a repeated request finds the job of the first one, whatever
/// its body says: a key is to name one order.
async fn accept(jobs: web::Data<Jobs>, request: HttpRequest, order: web::Json<Order>) -> Result<HttpResponse, Refused> {
    let Order { text, delay_seconds } = order.into_inner();
    let mut enqueue = jobs.enqueue(Note { text }).delay(Duration::from_secs(delay_seconds));
    if let Some(key) = request.headers().get("Idempotency-Key") {
        enqueue = enqueue.key(key.to_str().map_err(|_| Refused::Key)?);
    }
    let receipt = enqueue.await?;
    let location = (LOCATION, format!("/jobs/{}", receipt.id()));
    Ok(HttpResponse::Accepted().insert_header(location).json(json!({ "id": receipt.id(), "new": receipt.is_new() })))
}

async fn find(jobs: web::Data<Jobs>, id: web::Path<String>) -> Result<HttpResponse, Refused> {
    let id: JobId = id.parse().map_err(|_| Refused::NoSuchJob)?;
    match jobs.find(id).await? {
        Found::Live(info) => Ok(HttpResponse::Ok().json(live(&info))),
        Found::Gone(JobEnd::NotFound) => Err(Refused::NoSuchJob),
        Found::Gone(end) => Ok(HttpResponse::Ok().json(json!({ "id": id, "state": word(&end) }))),
        _ => Ok(HttpResponse::Ok().json(json!({ "id": id, "state": "unknown" }))),
    }
}

/// The text of a fault stays inside: it may be private.
fn live(info: &JobInfo) -> Value {
    let (state, why) = match info.state {
        JobState::Pending { .. } => ("pending", None),
        JobState::Held { why } => ("held", Some(why)),
        JobState::Running => ("running", None),
        _ => ("unknown", None),
    };
    json!({ "id": info.id, "state": state, "failures": info.failures, "why": why })
}

fn word(end: &JobEnd) -> &'static str {
    match end {
        JobEnd::Done => "done",
        JobEnd::Rejected(_) => "rejected",
        JobEnd::Unsafe(_) => "unsafe to repeat",
        JobEnd::Spent(_) => "spent",
        JobEnd::Late(_) => "late",
        JobEnd::Cancelled => "cancelled",
        _ => "ended",
    }
}

/// For a load balancer or a probe: amber still works.
async fn health(jobs: web::Data<Jobs>) -> HttpResponse {
    match jobs.health() {
        Health::Green => HttpResponse::Ok().json(json!({ "health": "green" })),
        Health::Amber { why } => HttpResponse::Ok().json(json!({ "health": "amber", "why": why })),
        Health::Red { why } => HttpResponse::ServiceUnavailable().json(json!({ "health": "red", "why": why })),
        _ => HttpResponse::Ok().json(json!({ "health": "unknown" })),
    }
}

async fn stats(jobs: web::Data<Jobs>) -> HttpResponse {
    HttpResponse::Ok().json(jobs.stats())
}

/// Why a request is not done.
#[derive(Debug)]
enum Refused {
    Body(JsonPayloadError),
    Key,
    NoSuchJob,
    Enqueue(EnqueueError),
    Call(CallError),
}

impl ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::Body(JsonPayloadError::Overflow { .. } | JsonPayloadError::OverflowKnownLength { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(_) | Self::Key => StatusCode::BAD_REQUEST,
            Self::NoSuchJob => StatusCode::NOT_FOUND,
            Self::Enqueue(EnqueueError::PayloadTooLarge { .. } | EnqueueError::TooLong { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Enqueue(EnqueueError::UnknownKind(_) | EnqueueError::NotEncodable { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
            // Full, read-only, shutting down, unavailable, unknown: all of them pass.
            Self::Enqueue(_) | Self::Call(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let mut response = HttpResponse::build(self.status_code());
        if self.status_code() == StatusCode::SERVICE_UNAVAILABLE {
            response.insert_header((RETRY_AFTER, RETRY_AFTER_SECONDS));
        }
        response.json(json!({ "error": self.to_string() }))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(error) => write!(f, "nothing is stored: {error}"),
            Self::Key => f.write_str("nothing is stored: the Idempotency-Key is not plain text"),
            Self::NoSuchJob => f.write_str("there never was such a job"),
            Self::Enqueue(EnqueueError::Unknown) => {
                f.write_str("the job may be stored or not: asking again with the same Idempotency-Key is harmless")
            }
            Self::Enqueue(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl From<EnqueueError> for Refused {
    fn from(error: EnqueueError) -> Self {
        Self::Enqueue(error)
    }
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// About what a restart takes, or a reopening.
const RETRY_AFTER_SECONDS: u64 = 2;
