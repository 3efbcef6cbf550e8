//! Looking at everything that can be read in the segments of a directory, past damage too: for tools that say what is wrong and save
//! what is left. Judges with the reader of recovery, up to the first damage and again behind it; never decides what may be used.

use std::io;

use super::frame::Batch;
use super::recovery::RecoverError;
use super::segment::{self, Header, Proved, Start};
use super::walk::{Boundary, File, Walk, damaged, numbered};
use crate::disk::Disk;
use crate::ids::{Epoch, Seq};

/// One thing that was seen. They come in the order of the segments, and within a segment in the order of its bytes.
pub(crate) enum Sight<'a> {
    /// A segment with a sound header.
    Segment {
        /// Its name.
        file: &'a str,
        /// What its header says of the journal before it. The epoch is not in it.
        behind: Boundary,
        /// Where its frames begin.
        start: u64,
        /// It goes on where the segment before it ends, and that was read to its end without damage.
        follows: bool,
    },
    /// A batch whose checksums hold.
    Batch {
        batch: &'a Batch,
        /// Where it begins and ends in the last segment that was seen.
        offset: u64,
        end: u64,
    },
    /// The last segment was read to its end, and this is where its last frame ends.
    End(u64),
    /// Something that should be there is not. What comes next does not follow what came before.
    Wrong(RecoverError<std::convert::Infallible>),
    /// A segment of this number is named by another one as the one before it, and is not there.
    Missing { number: u64, by: &'a str },
    /// These records should stand between what came before and what comes next, and cannot be read.
    Unreadable { from: Seq, to: Seq },
    /// A crash left this behind the last whole batch.
    Torn { file: &'a str, offset: u64 },
}

/// Shows all there is, or all up to a batch at which it is answered that this is enough. An error is one of listing the directory;
/// what else the disk refuses is shown as wrong.
pub(crate) fn survey(disk: &dyn Disk, see: &mut dyn FnMut(Sight<'_>) -> bool) -> io::Result<()> {
    let names: Vec<(u64, String)> = match numbered::<std::convert::Infallible>(disk) {
        Ok(names) => names.into_iter().collect(),
        Err(RecoverError::Io { source, .. }) => return Err(source),
        Err(other) => return Err(io::Error::other(other)),
    };
    let mut heads = names.iter().map(|(_, name)| head(disk, name)).collect::<Vec<_>>().into_iter().peekable();
    let newest = names.last().map(|(number, _)| *number);
    // Where the last segment ended, if it was read to its end, and the last record that is known of.
    let mut before = Before { number: 0, walk: None, last: None, is_enough: false };
    for (number, name) in names {
        let Some(head) = heads.next() else { break };
        let is_newest = Some(number) == newest;
        let Some(header) = judge(number, &name, is_newest, head, see) else {
            // Of the first one it is known where it began.
            let last = if number == 1 { before.last.or(Some(Seq(0))) } else { before.last };
            before = Before { number, walk: None, last, is_enough: false };
            continue;
        };
        let follows = link(&before, &name, &header, see);
        if let (false, Some(last)) = (follows, before.last)
            && header.first > last.next()
        {
            see(Sight::Unreadable { from: last.next(), to: Seq(header.first.0 - 1) });
        }
        let behind = behind(&header);
        see(Sight::Segment { file: &name, behind, start: segment::HEADER as u64, follows });
        let walk = match before.walk.take() {
            Some(walk) if follows => walk,
            _ => Walk::from(&behind, 0, None),
        };
        let successor = heads.peek().and_then(|head| match head {
            Ok(Start::Header(next)) => next.previous.filter(|previous| previous.number == number),
            _ => None,
        });
        let reading = Reading { disk, name: &name, successor, is_newest };
        before = reading.read(header, walk, number, before.last, see);
        if before.is_enough {
            break;
        }
    }
    Ok(())
}

/// What is known of the journal before a segment.
struct Before {
    number: u64,
    /// None when it was not read to its end without damage.
    walk: Option<Walk>,
    last: Option<Seq>,
    is_enough: bool,
}

fn head(disk: &dyn Disk, name: &str) -> io::Result<Start> {
    Ok(match Header::read(&disk.read_at(name, 0, segment::HEADER)?) {
        // Whether nothing stands behind it.
        Start::Torn => Header::read(&disk.read(name)?),
        other => other,
    })
}

/// The header, if it is one of this segment.
fn judge(number: u64, name: &str, is_newest: bool, head: io::Result<Start>, see: &mut dyn FnMut(Sight<'_>) -> bool) -> Option<Header> {
    let wrong = match head {
        Ok(Start::Header(header)) if header.number == number => return Some(header),
        Ok(Start::Header(header)) => damaged(name, 0, &format!("the header of segment {number}, not of {}", header.number)),
        Ok(Start::Torn) if is_newest => {
            see(Sight::Torn { file: name, offset: 0 });
            return None;
        }
        Ok(Start::Torn) => damaged(name, 0, "a segment header"),
        Ok(Start::Newer(needs)) => RecoverError::Newer { file: name.to_owned(), needs },
        Ok(Start::Bad(expected)) => damaged(name, 0, expected),
        Err(source) => RecoverError::Io { file: name.to_owned(), source },
    };
    see(Sight::Wrong(wrong));
    None
}

/// Whether the segment goes on where the one before it ends.
fn link(before: &Before, name: &str, header: &Header, see: &mut dyn FnMut(Sight<'_>) -> bool) -> bool {
    match header.previous {
        None if before.number == 0 && header.first == Seq(1) => true,
        None => {
            see(Sight::Wrong(damaged(name, 0, "a segment that follows another, or begins at record 1")));
            false
        }
        Some(previous) if previous.number == before.number => before.walk.is_some(),
        Some(previous) => {
            see(Sight::Missing { number: previous.number, by: name });
            false
        }
    }
}

/// What a header says of the journal before its segment.
fn behind(header: &Header) -> Boundary {
    let Proved { number, length, checksum } = header.previous.unwrap_or(Proved { number: 0, length: 0, checksum: 0 });
    Boundary { last: Seq(header.first.0.saturating_sub(1)), epoch: Epoch(0), segment: number, length, checksum }
}

struct Reading<'a> {
    disk: &'a dyn Disk,
    name: &'a str,
    successor: Option<Proved>,
    is_newest: bool,
}

impl Reading<'_> {
    /// Shows what is in the segment.
    fn read(&self, header: Header, mut walk: Walk, number: u64, last: Option<Seq>, see: &mut dyn FnMut(Sight<'_>) -> bool) -> Before {
        let start = Seq(header.first.0.saturating_sub(1));
        let known = Some(last.map_or(start, |last| last.max(start)));
        let broken = |last| Before { number, walk: None, last, is_enough: false };
        let bytes = match self.disk.read(self.name) {
            Ok(bytes) => bytes,
            Err(source) => {
                see(Sight::Wrong(RecoverError::Io { file: self.name.to_owned(), source }));
                return broken(known);
            }
        };
        let file = File { name: self.name.to_owned(), header };
        let mut inside = match walk.enter(file, self.successor, bytes, true) {
            Ok(inside) => inside,
            Err(wrong) => {
                see(Sight::Wrong(wrong));
                return broken(known);
            }
        };
        let mut is_whole = true;
        loop {
            match walk.next(&mut inside) {
                Ok(Some(batch)) => {
                    let (_, offset) = inside.place();
                    if !see(Sight::Batch { batch, offset, end: inside.end() }) {
                        return Before { is_enough: true, ..broken(known) };
                    }
                }
                Ok(None) => break,
                Err(wrong) => {
                    is_whole = false;
                    see(Sight::Wrong(wrong));
                    let missed = walk.tail.last.next();
                    let Some(next) = inside.skip_damage(&mut walk.tail) else { break };
                    if next > missed {
                        see(Sight::Unreadable { from: missed, to: Seq(next.0 - 1) });
                    }
                }
            }
        }
        if is_whole {
            see(Sight::End(inside.end()));
        }
        if let Some(torn) = walk.torn.take() {
            see(Sight::Torn { file: &torn.file, offset: torn.offset });
        }
        let last = Some(walk.tail.last);
        // Behind a segment without a sound successor nothing follows that could be believed to.
        let is_whole = is_whole && (self.successor.is_some() || self.is_newest);
        Before { number, walk: is_whole.then_some(walk), last, is_enough: false }
    }
}
