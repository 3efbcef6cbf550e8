//! The job: a note that is written into a notebook. Knows nothing of HTTP.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use journeyman::{Cx, Job, JobResult};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) text: String,
}

impl Job for Note {
    type Context = Notebook;
    type Output = ();
    const KIND: &'static str = "note.write";

    async fn run(self, cx: Cx<Notebook>) -> JobResult<()> {
        let Notebook { file, takes } = cx.context();
        cx.sleep(*takes).await;
        // One write, so that a line is there as a whole or not at all. The id tells a note that is written again after a crash.
        (&mut &*file).write_all(format!("{} in attempt {}: {}\n", cx.id(), cx.attempt(), self.text).as_bytes())?;
        Ok(())
    }
}

/// Where the notes are written, and how long each takes.
pub(crate) struct Notebook {
    file: File,
    takes: Duration,
}

impl Notebook {
    pub(crate) fn open(path: &Path, takes: Duration) -> io::Result<Self> {
        Ok(Self { file: File::options().create(true).append(true).open(path)?, takes })
    }
}
