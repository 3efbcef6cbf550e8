//! Reading the segments before the one being written, in bounded steps and with the reader of recovery, while the journal goes
//! on. Reads only; says which segments hold nothing that is still needed, and leaves removing them to others.

use std::sync::Arc;

use super::frame::Batch;
use super::recovery::{RecoverError, failed};
use super::segment::{self, Header, Proved, Start};
use super::walk::{Boundary, File, Inside, Segments, Walk, numbered, unreadable};
use crate::disk::Disk;

/// The sealed segments behind a boundary.
pub(crate) struct Sealed {
    disk: Arc<dyn Disk>,
    files: std::vec::IntoIter<(File, Proved)>,
    walk: Walk,
    stage: Stage,
    end: Boundary,
    total: u64,
}

enum Stage {
    Between,
    /// Its bytes come piece by piece: a whole segment at once would hold up whoever waits for the disk, and fill the memory.
    Inside(Inside),
    Over,
}

impl Sealed {
    /// Finds them: all behind `from` that come before the segment `before`, which must be there.
    pub(crate) fn find<E>(disk: Arc<dyn Disk>, from: &Boundary, before: u64) -> Result<Self, RecoverError<E>> {
        let found = Segments::find(&*disk, from, before)?;
        let mut end = *from;
        let mut files: Vec<(File, Proved)> = Vec::new();
        let mut waiting: Option<File> = None;
        for file in found.files {
            if let (Some(sealed), Some(proved)) = (waiting.take(), file.header.previous) {
                end = Boundary {
                    last: crate::ids::Seq(file.header.first.0.saturating_sub(1)),
                    segment: proved.number,
                    length: proved.length,
                    checksum: proved.checksum,
                    ..end
                };
                files.push((sealed, proved));
            }
            waiting = Some(file);
        }
        if waiting.is_none_or(|file| file.header.number != before) {
            return Err(super::walk::damaged(&segment::name(before), 0, "the segment that is being written"));
        }
        let total = files.iter().map(|(_, proved)| proved.length).sum();
        let walk = Walk::from(from, found.next, None);
        Ok(Self { disk, files: files.into_iter(), walk, stage: Stage::Between, end, total })
    }

    /// Whether there is no such segment.
    pub(crate) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Bytes of all of them.
    pub(crate) const fn bytes(&self) -> u64 {
        self.total
    }

    /// Reads some more: at most about `bytes` of the disk, or about so many bytes or `records` records of what was read. Gives
    /// each batch to `fold`. Answers how many bytes it read from the disk, and none at the end.
    pub(crate) fn step<E>(
        &mut self,
        bytes: usize,
        records: u64,
        mut fold: impl FnMut(&Batch) -> Result<(), E>,
    ) -> Result<Option<u64>, RecoverError<E>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Between => {
                let Some((file, proved)) = self.files.next() else { return Ok(None) };
                // A header that was whole when the segments were found; from there on piece by piece.
                let head = self.disk.read_at(&file.name, 0, segment::HEADER).map_err(unreadable(&file.name))?;
                self.stage = Stage::Inside(self.walk.enter(file, Some(proved), head, false)?);
                Ok(Some(0))
            }
            Stage::Inside(mut inside) => {
                let (mut folded, mut done) = (0, 0);
                while folded < records && done < bytes {
                    if let Some(got) = inside.read_on(&*self.disk, bytes)? {
                        self.stage = Stage::Inside(inside);
                        return Ok(Some(got));
                    }
                    let Some(batch) = self.walk.next(&mut inside)? else {
                        self.stage = Stage::Between;
                        return Ok(Some(0));
                    };
                    fold(batch).map_err(|source| failed(&inside, source))?;
                    folded += u64::from(batch.count);
                    done += batch.body.len();
                }
                self.stage = Stage::Inside(inside);
                Ok(Some(0))
            }
            Stage::Over => Ok(None),
        }
    }

    /// Where the last of them ends. Its epoch is known once all of them are read.
    pub(crate) const fn end(&self) -> Boundary {
        Boundary { epoch: self.walk.tail.epoch, ..self.end }
    }
}

/// The segments up to the number `upto`, oldest first, each with its bytes without the zeros behind its last frame. Of a
/// segment whose successor cannot be read the bytes are not known, and count as none: nothing that is still needed may hang on them.
pub(crate) fn removable<E>(disk: &dyn Disk, upto: u64) -> Result<Vec<(String, u64)>, RecoverError<E>> {
    let names = numbered(disk)?;
    let length = |number: u64| {
        let (_, successor) = names.range(number.saturating_add(1)..).next()?;
        let head = disk.read_at(successor, 0, segment::HEADER).ok()?;
        let Start::Header(Header { previous: Some(previous), .. }) = Header::read(&head) else { return None };
        (previous.number == number).then_some(previous.length)
    };
    Ok(names.range(..=upto).map(|(number, name)| (name.clone(), length(*number).unwrap_or_default())).collect())
}
