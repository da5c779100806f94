//! What the two sides of a region agree on before either touches it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use conic_interface::ccnic::{Features, Geometry, UnknownFeature};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::ProcessError;

/// The first word of an agreement, with the version of all that follows from it: its own text and the region's layout.
const VERSION: &str = "conic-2";

/// The longest agreement, in bytes.
const LONGEST: usize = 1024;

/// What both sides derive the layout of a region from. It travels as one line of text, with the region's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// How large the instance is.
    pub geometry: Geometry,
    /// Its switches.
    pub features: Features,
    /// The core that the NIC binds itself to.
    pub core: Option<usize>,
}

impl Agreement {
    fn to_line(self) -> String {
        let Geometry { queues, descriptors, buffers: [small, large, jumbo], object_bytes } = self.geometry;
        let core = self.core.map_or("any".to_owned(), |core| core.to_string());
        let features = self.features;
        format!("{VERSION} {queues} {descriptors} {small} {large} {jumbo} {object_bytes} {features} {core}\n")
    }

    fn of_line(line: &str) -> Result<Agreement, String> {
        let line = line.strip_suffix('\n').ok_or("it does not end")?;
        let words: Vec<&str> = line.split(' ').collect();
        let [version, queues, descriptors, small, large, jumbo, object_bytes, features, core] = words[..] else {
            return Err(format!("it has {} words", words.len()));
        };
        if version != VERSION {
            return Err(format!("it is of version '{version}' and this program speaks '{VERSION}'"));
        }
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("'{word}' is no number"));
        let queues = u32::try_from(number(queues)?).map_err(|_| format!("{queues} queues are too many"))?;
        let buffers = [number(small)?, number(large)?, number(jumbo)?];
        let geometry =
            Geometry { queues, descriptors: number(descriptors)?, buffers, object_bytes: number(object_bytes)? };
        let core = match core {
            "any" => None,
            core => Some(number(core)? as usize),
        };
        Ok(Agreement { geometry, features: features.parse().map_err(|error: UnknownFeature| error.to_string())?, core })
    }

    pub(super) fn send(self, socket: &UnixStream, region: BorrowedFd<'_>) -> Result<(), ProcessError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let regions = [region];
        let fits = control.push(SendAncillaryMessage::ScmRights(&regions));
        debug_assert!(fits, "the space was made for one descriptor");
        let line = self.to_line();
        // A message this short is taken whole or not at all.
        sendmsg(socket, &[IoSlice::new(line.as_bytes())], &mut control, SendFlags::empty())
            .map(|_| ())
            .map_err(|error| super::system("sending the region to the NIC's process")(error.into()))
    }

    pub(super) fn receive(socket: &UnixStream) -> Result<(Agreement, OwnedFd), ProcessError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut text = [0; LONGEST];
        let message = recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .map_err(|error| {
                let doing = "receiving a region from the standard input (conic itself starts this command)";
                super::system(doing)(error.into())
            })?;
        let refused = |why: &str| ProcessError::Peer(format!("the host's agreement was refused: {why}"));
        let regions = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let region = regions.flatten().next().ok_or_else(|| refused("no region came with it"))?;
        let line = std::str::from_utf8(&text[..message.bytes]).map_err(|_| refused("it is no text"))?;
        Ok((Agreement::of_line(line).map_err(|why| refused(&why))?, region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agreement_reads_back() {
        let geometry = Geometry { queues: 3, descriptors: 64, buffers: [1, 0, 16], object_bytes: 4096 };
        for (features, core) in [(Features::paper(), None), (Features::best(), Some(5))] {
            let agreement = Agreement { geometry, features, core };
            assert_eq!(Agreement::of_line(&agreement.to_line()), Ok(agreement));
        }
    }

    #[test]
    fn what_is_no_agreement_is_refused() {
        let good = Agreement { geometry: Geometry::default(), features: Features::best(), core: Some(0) }.to_line();
        let cut = good[..good.len() - 1].to_owned();
        for wrong in [
            cut,
            good.replace(VERSION, "conic-1"),
            good.replace("256", "-1"),
            good.replace("phase", "phrase"),
            good.replacen(' ', "  ", 1),
            "\n".to_owned(),
        ] {
            assert!(Agreement::of_line(&wrong).is_err(), "{wrong:?} was taken");
        }
    }
}
