//! Where a runner keeps its snapshots: in sled, each in a directory of its own that is written once. The only place that names
//! sled, and so the only one beside the disk that touches files: sled opens them itself. Never judges a chunk; that is the core's.
//!
//! What sled cannot be trusted with is done here (`docs/decisions/0007-snapshots.md`): its flush is no sync, so every file and directory
//! is synced; its open writes, so what is opened is a copy; it may panic or hang over damaged files, so their bytes are
//! compared with a list of checksums before it sees them, and it opens them on a thread that is waited for with a limit.

use std::path::Path;
use std::sync::Arc;

use journeyman_core::disk::Disk;
use journeyman_core::snapshot::{PlainStore, SnapshotStore};

/// The snapshots in the directory `dir`, of which `disk` is the locked one: in sled, or in plain files in a build without the
/// feature `sled`. For tools that [read a directory](journeyman_core::store::Store::open), and for tests.
#[must_use]
pub fn store(dir: &Path, disk: Arc<dyn Disk>) -> Box<dyn SnapshotStore> {
    let plain = PlainStore::new(disk);
    #[cfg(feature = "sled")]
    let store = trees::SledStore::new(dir, plain);
    #[cfg(not(feature = "sled"))]
    let (store, _) = (plain, dir);
    Box::new(store)
}

/// The same in a directory that must stay as it is, of which `disk` is a view: what sled is to open is copied elsewhere, into the
/// system's directory for temporary files.
#[must_use]
pub fn reader(dir: &Path, disk: Arc<dyn Disk>) -> Box<dyn SnapshotStore> {
    let plain = PlainStore::new(disk);
    #[cfg(feature = "sled")]
    let store = trees::SledStore::reader(dir, plain);
    #[cfg(not(feature = "sled"))]
    let (store, _) = (plain, dir);
    Box::new(store)
}

/// How the actors get at the snapshots, each with a value of its own.
pub(crate) type Snapshots = Arc<dyn Fn() -> Box<dyn SnapshotStore> + Send + Sync>;

/// The snapshots on this disk, in plain files: the reference, and what a disk in memory takes.
#[must_use]
pub fn plain(disk: Arc<dyn Disk>) -> Box<dyn SnapshotStore> {
    Box::new(PlainStore::new(disk))
}

#[cfg(feature = "sled")]
mod trees {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ffi::OsStr;
    use std::fs::{self, File, OpenOptions, Permissions};
    use std::io::{self, ErrorKind, Read, Write};
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use journeyman_core::bugs::{self, Bug};
    use journeyman_core::snapshot::{ChunkSink, ChunkSource, Finished, PlainStore, SnapshotError, SnapshotStore, Verified};
    use journeyman_core::{Seq, disk};

    /// Snapshots as directories of sled. Those that a build without it left in plain files are read, and removed in their turn.
    pub(super) struct SledStore {
        dir: PathBuf,
        plain: PlainStore,
        /// Nothing in the directory may change, not even the count of a file's names.
        only_reads: bool,
    }

    impl SledStore {
        pub(super) fn new(dir: &Path, plain: PlainStore) -> Self {
            Self { dir: dir.to_owned(), plain, only_reads: false }
        }

        pub(super) fn reader(dir: &Path, plain: PlainStore) -> Self {
            Self { dir: dir.to_owned(), plain, only_reads: true }
        }

        fn is_plain(&self, seq: Seq) -> bool {
            !is_there(&self.dir.join(name_of(seq))) && is_there(&self.dir.join(self.plain.name(seq)))
        }

        fn names(&self) -> Result<Vec<String>, SnapshotError> {
            let names = fs::read_dir(&self.dir).and_then(|entries| entries.map(|entry| Ok(text_of(&entry?.file_name()))).collect());
            names.map_err(SnapshotError::io("."))
        }

        fn may_write(&self) -> Result<(), SnapshotError> {
            if self.only_reads { Err(SnapshotError::io(".")(ErrorKind::ReadOnlyFilesystem.into())) } else { Ok(()) }
        }

        fn sync_names(&self) -> io::Result<()> {
            File::open(&self.dir)?.sync_all()
        }

        /// Beside the original, where blobs need no second copy; when there is no room, in the system's place for temporary files.
        fn open_copy(&self, seq: Seq, name: &str) -> Result<Box<dyn ChunkSource>, SnapshotError> {
            let number = OPENED.fetch_add(1, Ordering::Relaxed);
            let scratch = format!("{}{SCRATCH}{number}", name_of(seq));
            if self.only_reads {
                return self.open_copy_elsewhere(&scratch, name);
            }
            match self.open_copy_in(self.dir.join(&scratch), name) {
                Err(SnapshotError::Io { source, .. }) if NO_ROOM.contains(&source.kind()) => self.open_copy_elsewhere(&scratch, name),
                opened => opened,
            }
        }

        fn open_copy_elsewhere(&self, scratch: &str, name: &str) -> Result<Box<dyn ChunkSource>, SnapshotError> {
            // Made anew, never taken over: whoever made it before may be somebody else.
            let elsewhere = |n| std::env::temp_dir().join(format!("journeyman-{}-{n}-{scratch}", std::process::id()));
            self.open_copy_in((0..).map(elsewhere).find(|dir| !is_there(dir)).unwrap_or_default(), name)
        }

        fn open_copy_in(&self, scratch: PathBuf, name: &str) -> Result<Box<dyn ChunkSource>, SnapshotError> {
            let (from, copied, links) = (self.dir.join(name), name.to_owned(), !self.only_reads);
            let open = move || {
                let scratch = Scratch(scratch);
                // A process that was killed has left its own: nobody else copies here, as the directory is locked and this
                // process counts its copies.
                clear(&scratch.0).map_err(SnapshotError::io(&copied))?;
                copy(&from, &scratch.0, &copied, links)?;
                let db = config(&scratch.0).open().map_err(unreadable(&copied))?;
                Ok(SledSource { tree: Tree::new(db), name: copied, _scratch: scratch })
            };
            match limited(open).map_err(SnapshotError::io(name))? {
                Some(opened) => opened.map(|source| Box::new(source) as Box<dyn ChunkSource>),
                None => Err(SnapshotError::damaged(name, "a tree that sled opens without a panic, in time")),
            }
        }
    }

    impl SnapshotStore for SledStore {
        fn name(&self, seq: Seq) -> String {
            if self.is_plain(seq) { self.plain.name(seq) } else { name_of(seq) }
        }

        fn list(&self) -> Result<Vec<Seq>, SnapshotError> {
            let trees = self.names()?.into_iter().filter_map(|name| seq_of(&name));
            let seqs: BTreeSet<Seq> = trees.chain(self.plain.list()?).collect();
            Ok(seqs.into_iter().collect())
        }

        fn sweep(&self) -> Result<(), SnapshotError> {
            self.may_write()?;
            self.plain.sweep()?;
            for left in self.names()?.iter().filter(|name| is_leftover(name)) {
                remove_all(&self.dir.join(left)).map_err(SnapshotError::io(left))?;
            }
            Ok(())
        }

        fn begin(&self, seq: Seq) -> Result<Box<dyn ChunkSink>, SnapshotError> {
            self.sweep()?;
            let name = draft_of(seq);
            let dir = self.dir.join(&name);
            make_dir(&dir).map_err(SnapshotError::io(&name))?;
            let at = dir.clone();
            let opened = limited(move || config(&at).open()).map_err(SnapshotError::io(&name))?;
            let db = opened.unwrap_or_else(|| Err(sled::Error::Unsupported("it did not open".to_owned()))).map_err(unwritable(&name))?;
            Ok(Box::new(SledSink { parent: self.dir.clone(), dir, name, tree: Tree::new(db), chunks: 0, synced: BTreeSet::new() }))
        }

        fn open(&self, seq: Seq) -> Result<Box<dyn ChunkSource>, SnapshotError> {
            if self.is_plain(seq) { self.plain.open(seq) } else { self.open_copy(seq, &name_of(seq)) }
        }

        fn open_draft(&self, draft: &Finished) -> Result<Box<dyn ChunkSource>, SnapshotError> {
            self.open_copy(draft.seq(), &draft_of(draft.seq()))
        }

        fn publish(&self, draft: Verified) -> Result<(), SnapshotError> {
            self.may_write()?;
            let (from, name) = (self.dir.join(draft_of(draft.seq())), name_of(draft.seq()));
            let to = self.dir.join(&name);
            // Only a damaged snapshot of the same seq can be in the way: a good one would have been the base of this one.
            clear(&to).and_then(|()| fs::rename(from, to)).and_then(|()| self.sync_names()).map_err(SnapshotError::io(name))
        }

        fn remove(&self, seq: Seq) -> Result<(), SnapshotError> {
            self.may_write()?;
            if self.is_plain(seq) {
                return self.plain.remove(seq);
            }
            let (name, gone) = (name_of(seq), self.dir.join(draft_of(seq)));
            // By another name first: half of it must not be taken for a damaged snapshot.
            let removed = fs::rename(self.dir.join(&name), &gone).and_then(|()| self.sync_names());
            removed.and_then(|()| remove_all(&gone)).and_then(|()| self.sync_names()).map_err(SnapshotError::io(name))
        }
    }

    /// A tree whose memory is given back when it is dropped. sled leaves that to whoever uses its collector next, which is the next
    /// snapshot: each would find the memory of the one before still taken.
    struct Tree {
        db: sled::Db,
        // Dropped behind the tree.
        _collected: Collected,
    }

    impl Tree {
        const fn new(db: sled::Db) -> Self {
            Self { db, _collected: Collected }
        }
    }

    struct Collected;

    impl Drop for Collected {
        fn drop(&mut self) {
            (0..COLLECTIONS).for_each(|_| crossbeam_epoch::pin().flush());
        }
    }

    struct SledSink {
        parent: PathBuf,
        dir: PathBuf,
        name: String,
        tree: Tree,
        chunks: u32,
        /// Blobs, which are written once, that are durable.
        synced: BTreeSet<PathBuf>,
    }

    impl SledSink {
        fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), SnapshotError> {
            caught(|| self.tree.db.insert(key, value)).map(drop).map_err(unwritable(&self.name))
        }

        fn sync_files(&mut self) -> io::Result<()> {
            for path in files_of(&self.dir)? {
                if !self.synced.contains(&path) {
                    sync_private(&path)?;
                    if is_blob(&path) {
                        self.synced.insert(path);
                    }
                }
            }
            Ok(())
        }
    }

    impl ChunkSink for SledSink {
        fn put(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
            self.insert(&self.chunks.to_be_bytes(), chunk)?;
            self.chunks += 1;
            Ok(())
        }

        fn sync(&mut self) -> Result<(), SnapshotError> {
            caught(|| self.tree.db.flush()).map_err(unwritable(&self.name))?;
            // The flush has written all of it, but syncs nothing that grew, and no blob.
            self.sync_files().map_err(SnapshotError::io(&self.name))
        }

        fn finish(mut self: Box<Self>, meta: &[u8]) -> Result<(), SnapshotError> {
            self.insert(META, meta)?;
            self.sync()?;
            let Self { parent, dir, name, tree, synced, .. } = *self;
            caught(|| {
                drop(tree);
                Ok(())
            })
            .map_err(unwritable(&name))?;
            seal(&parent, &dir, synced).map_err(SnapshotError::io(name))
        }
    }

    /// Lists the files with their checksums, and makes all of it durable, the names included.
    fn seal(parent: &Path, dir: &Path, synced: BTreeSet<PathBuf>) -> io::Result<()> {
        let mut list = format!("{LIST_HEAD}{LIST_FORMAT}\n");
        for path in files_of(dir)? {
            let (bytes, checksum) = checked(&path, &mut io::sink())?;
            list.push_str(&format!("{checksum:08x} {bytes} {}\n", relative(dir, &path)));
            if !synced.contains(&path) {
                sync_private(&path)?;
            }
        }
        list.push_str(&format!("{:08x}\n", crc32c::crc32c(list.as_bytes())));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join(LIST))?;
        file.write_all(list.as_bytes())?;
        sync_all(&file)?;
        for dir in [&dir.join(BLOBS), dir, parent] {
            if dir != parent {
                fs::set_permissions(dir, Permissions::from_mode(0o700))?;
            }
            sync_all(&File::open(dir)?)?;
        }
        Ok(())
    }

    /// sled makes its files as the umask says: they become their owner's alone, and durable.
    fn sync_private(path: &Path) -> io::Result<()> {
        let file = disk::open_regular(path)?;
        if file.metadata()?.permissions().mode() & 0o777 != 0o600 {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        sync_all(&file)
    }

    /// What sled leaves undone.
    fn sync_all(file: &File) -> io::Result<()> {
        if bugs::on(Bug::NoSnapshotSync) { Ok(()) } else { file.sync_all() }
    }

    /// A copy of a snapshot that sled may write to, as it does when it opens one.
    struct SledSource {
        // Closed before its files go.
        tree: Tree,
        name: String,
        _scratch: Scratch,
    }

    impl SledSource {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SnapshotError> {
            let value = caught(|| self.tree.db.get(key)).map_err(unreadable(&self.name))?;
            Ok(value.map(|value| value.to_vec()))
        }
    }

    impl ChunkSource for SledSource {
        fn meta(&mut self) -> Result<Vec<u8>, SnapshotError> {
            self.get(META)?.ok_or_else(|| SnapshotError::damaged(&self.name, "meta data"))
        }

        fn chunk(&mut self, index: u32) -> Result<Option<Vec<u8>>, SnapshotError> {
            self.get(&index.to_be_bytes())
        }
    }

    /// A directory that goes with its owner. What a crash leaves of one is swept by the next draft.
    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            // When it fails, the next draft sweeps it.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Copies a snapshot, and compares every byte with its list on the way.
    fn copy(from: &Path, to: &Path, name: &str, links: bool) -> Result<(), SnapshotError> {
        // A link to a directory is none: what is at its other end is not ours.
        if !fs::symlink_metadata(from).map_err(cannot_read(name))?.is_dir() {
            return Err(SnapshotError::damaged(name, "a directory"));
        }
        let list = read_list(from, name)?;
        let found = files_of(from).map_err(cannot_read(name))?;
        let there: BTreeSet<String> = found.iter().map(|path| relative(from, path)).filter(|path| path != LIST).collect();
        if let Some(other) = there.iter().find(|path| !list.contains_key(*path)) {
            return Err(SnapshotError::damaged(format!("{name}/{other}"), "no such file"));
        }
        // Only what was found here is read: a name in the list may lead anywhere.
        if let Some(missing) = list.keys().find(|path| !there.contains(*path)) {
            return Err(SnapshotError::damaged(format!("{name}/{missing}"), "this file"));
        }
        make_dir(to).and_then(|()| make_dir(&to.join(BLOBS))).map_err(SnapshotError::io(name))?;
        for (path, said) in &list {
            let (source, place, file) = (from.join(path), to.join(path), format!("{name}/{path}"));
            // A blob is written once and never over: sled at most unlinks it, and then its other name stays.
            let linked = links && is_blob(&source) && fs::hard_link(&source, &place).is_ok();
            let read = if linked { checked(&source, &mut io::sink()) } else { checked(&source, &mut new_file(&place, &file)?) };
            if read.map_err(cannot_read(&file))? != *said {
                return Err(SnapshotError::damaged(file, format!("{} bytes with the checksum {:08x}", said.0, said.1)));
            }
        }
        Ok(())
    }

    /// The files of a snapshot, each with its length and checksum.
    fn read_list(dir: &Path, name: &str) -> Result<BTreeMap<String, (u64, u32)>, SnapshotError> {
        let file = format!("{name}/{LIST}");
        let mut text = Vec::new();
        disk::open_regular(&dir.join(LIST)).and_then(|mut list| list.read_to_end(&mut text)).map_err(cannot_read(&file))?;
        let damaged = || SnapshotError::damaged(&*file, "a list of files with a right checksum");
        let said = String::from_utf8(text).ok().and_then(checked_lines).ok_or_else(damaged)?;
        let (format, lines) = said.strip_prefix(LIST_HEAD).and_then(|said| said.split_once('\n')).ok_or_else(damaged)?;
        match format.parse::<u16>() {
            Ok(LIST_FORMAT) => lines.lines().map(parse_line).collect::<Option<_>>().ok_or_else(damaged),
            // Its checksum is right: a newer release wrote it, and nothing may stand in for that.
            Ok(needs) if needs > LIST_FORMAT => Err(SnapshotError::Newer { name: file, needs }),
            _ => Err(damaged()),
        }
    }

    /// The lines before the last one, which is their checksum.
    fn checked_lines(text: String) -> Option<String> {
        let (said, checksum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let said = format!("{said}\n");
        (checksum == format!("{:08x}", crc32c::crc32c(said.as_bytes()))).then_some(said)
    }

    fn parse_line(line: &str) -> Option<(String, (u64, u32))> {
        let (checksum, rest) = line.split_once(' ')?;
        let (bytes, path) = rest.split_once(' ')?;
        Some((path.to_owned(), (bytes.parse().ok()?, u32::from_str_radix(checksum, 16).ok()?)))
    }

    /// Reads a file in pieces, writes it to `to`, and answers its length and checksum.
    fn checked(path: &Path, to: &mut dyn Write) -> io::Result<(u64, u32)> {
        let mut file = disk::open_regular(path)?;
        let mut piece = vec![0; PIECE];
        let (mut bytes, mut checksum) = (0, 0);
        loop {
            let length = file.read(&mut piece)?;
            let Some(read) = piece.get(..length).filter(|read| !read.is_empty()) else { return Ok((bytes, checksum)) };
            to.write_all(read)?;
            bytes += length as u64;
            checksum = crc32c::crc32c_append(checksum, read);
        }
    }

    fn new_file(path: &Path, name: &str) -> Result<File, SnapshotError> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(SnapshotError::io(name))
    }

    /// All files of a sled directory, which has one directory in it.
    fn files_of(dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => files.extend(files_of(&entry.path())?),
                kind if kind.is_file() => files.push(entry.path()),
                // No link is followed.
                _ => return Err(ErrorKind::NotFound.into()),
            }
        }
        Ok(files)
    }

    fn is_blob(path: &Path) -> bool {
        path.parent().and_then(Path::file_name) == Some(OsStr::new(BLOBS))
    }

    fn relative(dir: &Path, path: &Path) -> String {
        path.strip_prefix(dir).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Whether there is anything of that name, be it a link to nothing.
    fn is_there(path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
    }

    /// Makes room for something of that name.
    fn clear(path: &Path) -> io::Result<()> {
        if is_there(path) { remove_all(path) } else { Ok(()) }
    }

    /// Takes away a directory with all that is in it, or what somebody has put in its place.
    fn remove_all(path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
    }

    /// Its owner's alone, whatever the umask.
    fn make_dir(dir: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(dir)?;
        fs::set_permissions(dir, Permissions::from_mode(0o700))
    }

    fn config(dir: &Path) -> sled::Config {
        sled::Config::new().path(dir).cache_capacity(CACHE_BYTES).flush_every_ms(None)
    }

    /// Does the work on a thread that is waited for no longer than the limit. None when it did not end, or ended in a panic.
    fn limited<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Option<T>> {
        let (tell, told) = mpsc::sync_channel(1);
        let worker = move || {
            // Nobody listens any more when it took too long.
            let _ = tell.send(catch_unwind(AssertUnwindSafe(work)).ok());
        };
        let thread = thread::Builder::new().name("journeyman-sled".to_owned()).spawn(worker)?;
        let done = told.recv_timeout(PATIENCE);
        if done.is_ok() {
            // It has sent all that it had to say.
            let _ = thread.join();
        }
        Ok(done.ok().flatten())
    }

    /// A panic of sled is one of its errors.
    fn caught<T>(work: impl FnOnce() -> sled::Result<T>) -> sled::Result<T> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(sled::Error::ReportableBug("it panicked".to_owned())))
    }

    /// What sled says while it reads is damage, unless it is the system that refuses.
    fn unreadable(name: &str) -> impl FnOnce(sled::Error) -> SnapshotError {
        let name = name.to_owned();
        move |error| match error {
            // sled hands some errors on without the system's number: only what it says of the content is damage.
            sled::Error::Io(source)
                if !matches!(source.kind(), ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
            {
                SnapshotError::Io { name, source }
            }
            other => SnapshotError::damaged(name, format!("a tree that sled can read: {other}")),
        }
    }

    fn unwritable(name: &str) -> impl FnOnce(sled::Error) -> SnapshotError {
        let name = name.to_owned();
        move |error| match error {
            sled::Error::Io(source) => SnapshotError::Io { name, source },
            other => SnapshotError::Io { name, source: io::Error::other(other) },
        }
    }

    /// A file that should be there and is not is damage; what the system refuses is not.
    fn cannot_read(name: &str) -> impl FnOnce(io::Error) -> SnapshotError {
        let name = name.to_owned();
        move |source| match source.kind() {
            ErrorKind::NotFound => SnapshotError::damaged(name, "this file"),
            _ => SnapshotError::Io { name, source },
        }
    }

    fn name_of(seq: Seq) -> String {
        disk::numbered(seq.0, SUFFIX)
    }

    fn draft_of(seq: Seq) -> String {
        name_of(seq) + DRAFT
    }

    /// The seq in the name of a snapshot; none when the name is of something else.
    fn seq_of(text: &str) -> Option<Seq> {
        disk::number_of(text, SUFFIX).map(Seq)
    }

    fn is_leftover(text: &str) -> bool {
        let of = |end: &str| {
            text.rsplit_once(end).is_some_and(|(name, behind)| seq_of(name).is_some() && behind.bytes().all(|b| b.is_ascii_digit()))
        };
        of(DRAFT) || of(SCRATCH)
    }

    fn text_of(name: &OsStr) -> String {
        name.to_string_lossy().into_owned()
    }

    const SUFFIX: &str = ".sled";
    const DRAFT: &str = ".tmp";
    const SCRATCH: &str = ".open";
    /// When a copy cannot be beside the original.
    const NO_ROOM: [ErrorKind; 3] = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem];
    /// Where sled keeps large pages.
    const BLOBS: &str = "blobs";
    const LIST: &str = "journeyman.files";
    const LIST_HEAD: &str = "journeyman snapshot in sled, ";
    const LIST_FORMAT: u16 = 1;
    /// Behind all chunks, whose keys are four bytes.
    const META: &[u8] = b"meta data";
    /// A snapshot is written once and read once: a cache has nothing to remember. Measured: 64 MiB of it changed nothing.
    const CACHE_BYTES: u64 = 1 << 20;
    /// Garbage is freed when no thread has looked at it for two rounds; a few more for those that do just then.
    const COLLECTIONS: usize = 16;
    /// What a snapshot of many gigabytes takes to be copied on a slow disk. It is for what hangs, and nothing is lost when it is wrong.
    const PATIENCE: Duration = Duration::from_secs(120);
    const PIECE: usize = 1 << 20;
    /// So that two copies of one snapshot do not meet.
    static OPENED: AtomicU64 = AtomicU64::new(0);
}
