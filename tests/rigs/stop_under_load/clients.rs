//! The load: clients on connections that are kept, each with one request at a time, each request with a key of its own. What
//! a client did not get an answer for it asks again in the next round.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use journeyman_core::JobId;

/// A job that a client knows to be on disk.
pub(crate) struct Acknowledged {
    pub(crate) key: String,
    pub(crate) id: JobId,
}

#[derive(Default)]
pub(crate) struct Clients {
    /// Keys whose answer was lost or a refusal.
    unanswered: Vec<String>,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    acknowledged: u64,
    /// Of the acknowledged: those of an earlier request, whose answer was lost.
    found_again: u64,
    refused: u64,
    cut_off: u64,
}

impl Clients {
    /// Lets the clients ask while `act` goes on, and answers what it came to and what they know since.
    pub(crate) fn while_they_ask<T>(&mut self, address: SocketAddr, round: u64, act: impl FnOnce() -> T) -> (T, Vec<Acknowledged>) {
        let over = AtomicBool::new(false);
        let unanswered = std::mem::take(&mut self.unanswered);
        let share = unanswered.len().div_ceil(CLIENTS).max(1);
        let mut shares = unanswered.chunks(share);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let again = shares.next().unwrap_or_default().to_vec();
                    let client = Client { name: format!("{round}-{number}"), again, ..Client::default() };
                    scope.spawn(|| client.ask_until(&over, address))
                })
                .collect();
            let acted = act();
            over.store(true, Ordering::Relaxed);
            let mut acknowledged = Vec::new();
            for client in clients {
                let client = client.join().expect("a client does not panic");
                self.counts.add(client.counts);
                self.unanswered.extend(client.again);
                acknowledged.extend(client.acknowledged);
            }
            (acted, acknowledged)
        })
    }
}

#[derive(Default)]
struct Client {
    name: String,
    /// What is to be asked before anything new.
    again: Vec<String>,
    asked: u64,
    acknowledged: Vec<Acknowledged>,
    counts: Counts,
}

impl Client {
    fn ask_until(mut self, over: &AtomicBool, address: SocketAddr) -> Self {
        while !over.load(Ordering::Relaxed) {
            match Connection::open(address) {
                Ok(mut connection) => while !over.load(Ordering::Relaxed) && self.ask(&mut connection) {},
                // Nobody listens any more.
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
        self
    }

    /// One request. Answers whether the connection is good for another.
    fn ask(&mut self, connection: &mut Connection) -> bool {
        let key = self.again.pop().unwrap_or_else(|| {
            self.asked += 1;
            format!("{}-{}", self.name, self.asked)
        });
        let answer = connection.ask("POST", "/jobs", &format!("Idempotency-Key: {key}\r\n"), &format!(r#"{{"text":"{key}"}}"#));
        match answer {
            Ok((202, body)) => {
                let named = body.strip_prefix(r#"{"id":""#).and_then(|rest| rest.split_once('"'));
                let (id, rest) = named.unwrap_or_else(|| panic!("a 202 names its job: {body}"));
                self.counts.acknowledged += 1;
                self.counts.found_again += u64::from(rest.contains("false"));
                self.acknowledged.push(Acknowledged { key, id: id.parse().expect("an id can be read back") });
                return true;
            }
            Ok((503, _)) => self.counts.refused += 1,
            Ok((status, body)) => panic!("no request is answered like this: {status} {body}"),
            Err(_) => self.counts.cut_off += 1,
        }
        self.again.push(key);
        false
    }
}

/// A connection that is kept for the next request.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Status and body of the answer; an error when it did not come as a whole.
    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> io::Result<(u16, String)> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let mut length = 0;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.strip_prefix("content-length:") {
                Some(number) => length = number.trim().parse().map_err(io::Error::other)?,
                None if line.is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        if line.ends_with("\r\n") { Ok(line.trim_end().to_owned()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Counts {
    const fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.found_again += other.found_again;
        self.refused += other.refused;
        self.cut_off += other.cut_off;
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { acknowledged, found_again, refused, cut_off } = self.counts;
        write!(f, "{acknowledged} answers of 202 read, {found_again} of them to a second request with its key; ")?;
        write!(f, "{refused} requests refused, {cut_off} cut off")
    }
}

const CLIENTS: usize = 16;
/// Longer than any stop.
const PATIENCE: Duration = Duration::from_secs(10);
