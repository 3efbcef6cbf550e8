//! `salvage`: what is sound into a new directory, and what was left behind.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use journeyman_core::disk::{Disk, FileDisk};
use journeyman_core::ids::Escaped;
use journeyman_core::inspect::Sort;
use journeyman_core::journal::Salt;
use journeyman_core::salvage::{Left, Salvage, SalvageError};

use super::text::{Object, plural};
use super::verify::{findings_json, standing_json, standing_table};
use super::{DAMAGED, End, Looked, NEWER, Place, REFUSED, SOUND, USAGE, refused, status_of};
use crate::clock::Clock;
use crate::snapshots;

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    place: Place,

    /// The directory to make: not there yet, or empty
    #[arg(long, value_name = "NEW")]
    to: PathBuf,
}

pub(super) fn run(options: &Options, out: &mut dyn Write, _: &mut dyn Write) -> Result<u8, End> {
    let looked = Looked::at(&options.place.dir)?;
    if looked.view.would_hold(&options.to).map_err(|error| refused(&error))? {
        return Err(End::Failed(USAGE, format!("{} is within the old directory, in which nothing may change", options.to.display())));
    }
    // Nothing is made before it is known that there is something to save.
    let salvage = Salvage::plan(&looked.disk, &*looked.snapshots).map_err(|error| failed(&error))?;
    let new: Arc<dyn Disk> = match FileDisk::create(&options.to) {
        Ok(disk) => Arc::new(disk),
        Err(error) => return Err(End::Failed(status_of(&error), error.to_string())),
    };
    let to = snapshots::store(&options.to, new.clone());
    let clock = Clock::system();
    let salt = Salt(u128::from(clock.random()) << 64 | u128::from(clock.random()));
    let bytes = salvage.write((&looked.disk, &*looked.snapshots), (&new, &*to), salt).map_err(|error| failed(&error))?;
    let status = if salvage.is_all() && salvage.found.sort() == Sort::Note { SOUND } else { DAMAGED };
    let said = if options.place.json { writeln!(out, "{}", json(&salvage, bytes)) } else { table(options, &salvage, bytes, out) };
    said.and_then(|()| out.flush()).map_err(|error| End::Unheard(status, error))?;
    Ok(status)
}

fn failed(error: &SalvageError) -> End {
    let status = match error {
        SalvageError::Unjudged(finding) if finding.sort == Sort::Newer => NEWER,
        SalvageError::Nothing => DAMAGED,
        _ => REFUSED,
    };
    End::Failed(status, error.to_string())
}

fn table(options: &Options, salvage: &Salvage, bytes: u64, out: &mut dyn Write) -> io::Result<()> {
    let standing = salvage.standing();
    let all = if salvage.is_all() { "all that was durable is" } else { "not all of it is" };
    writeln!(out, "saved in {}: {all} there", Escaped(&options.to.display().to_string()))?;
    standing_table(&standing, out)?;
    writeln!(out, "  segments   {bytes} bytes")?;
    let Left { records, enqueued, ended, unreadable } = salvage.left;
    if !salvage.is_all() {
        let from = standing.last.0.saturating_add(1);
        writeln!(
            out,
            "  left       behind record {}: {} that can be read, {unreadable} that cannot",
            standing.last,
            plural(records, "record")
        )?;
        writeln!(out, "             of those: {} enqueued, {ended} ended or cancelled, which may run again", plural(enqueued, "job"))?;
        writeln!(out, "             to see them: journeyman dump DIR --from {from}")?;
    }
    for finding in &salvage.found.findings {
        writeln!(out, "  {}     {finding}", if finding.sort == Sort::Note { "note  " } else { "damage" })?;
    }
    Ok(())
}

fn json(salvage: &Salvage, bytes: u64) -> String {
    let Left { records, enqueued, ended, unreadable } = salvage.left;
    let mut left = Object::default();
    left.put("after", &salvage.standing().last).put("records", &records).put("enqueued", &enqueued);
    left.put("ended", &ended).put("unreadable", &unreadable);
    let mut object = Object::default();
    object.put("all", &salvage.is_all()).put_json("saved", &standing_json(&salvage.standing())).put("segment_bytes", &bytes);
    object.put_json("left", &left.end()).put_json("findings", &findings_json(&salvage.found.findings)).end()
}
