//! Which NIC behind CXL or PCIe, on which machine, and what is sent: options that `conic sim cxl` and `conic trace cxl` share.

use std::ops::RangeInclusive;

use clap::Args;
use conic_sim::cxl::CxlParameters;
use conic_sim::platform::Platform;
use conic_study::cxl_nic::advise::choose;
use conic_study::cxl_nic::loopback::{Attachment, Design};
use conic_study::cxl_nic::{ccnic, layout, optimal};

use super::question::{Question, load};
use crate::bench::failure::Failure;

/// Which machine with its device, which design, and which packets.
#[derive(Clone, Debug, Args)]
pub struct DesignQuestion {
    /// The machine, with its device: agilex7 (CXL, measured), cxl-asic, cxl3-asic (CXL, guesses), bf3 (PCIe), or the path of a file that
    /// ends in .toml
    #[arg(long, value_name = "NAME|FILE", default_value = "agilex7")]
    pub platform: String,
    /// Replace a value of the platform, in its unit or with one of its own, as in link.crossing=60ns; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
    /// The NIC: 0 to 7, the paper's combinations of request types; layout-1 to layout-4, by what is in the device's memory (Figure 13);
    /// optimal, section 7.2's with pushes and device memory; ccnic, CC-NIC's layout; dma, over PCIe [default: 0, or dma behind PCIe]
    #[arg(long, value_name = "DESIGN", value_parser = named)]
    design: Option<Named>,
    /// Take another choice for one step or structure, both named as conic advise names them; may be repeated
    #[arg(long = "choose", value_name = "WHAT=CHOICE")]
    choices: Vec<String>,
    /// Bytes of a packet, 60 to 9600
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=9600))]
    pub packet_size: u16,
    /// Packets that come one right behind the other, 1 to 32
    #[arg(long, value_name = "PACKETS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub burst: u16,
    /// The seed of everything that is drawn; the same seed gives the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
}

/// A design, and what it is called.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    design: Design,
}

impl Named {
    /// One of the paper's combinations of request types.
    fn combination(number: u32) -> Named {
        Named { name: format!("combination {number}"), design: Design::combination(number) }
    }
}

/// Reads the name of a design.
fn named(text: &str) -> Result<Named, String> {
    let other = |name: &str, design| Some(Named { name: name.to_owned(), design });
    let number = |digits: &str, of: RangeInclusive<u32>| digits.parse().ok().filter(|number| of.contains(number));
    let found = match text {
        "optimal" => other("the configuration of section 7.2", optimal()),
        "ccnic" => other("CC-NIC's layout", ccnic()),
        "dma" => other("DMA", Design::pcie()),
        _ => match text.strip_prefix("layout-") {
            Some(digits) => number(digits, 1..=4)
                .map(|number| Named { name: format!("layout L{number}"), design: layout(number as usize) }),
            None => number(text, 0..=7).map(Named::combination),
        },
    };
    found.ok_or_else(|| "give 0 to 7, layout-1 to layout-4, optimal, ccnic or dma".to_owned())
}

impl DesignQuestion {
    /// The same question about a machine with a CXL device that was asked about machines of two sockets.
    ///
    /// # Errors
    ///
    /// What of it these machines have nothing of.
    pub fn of(question: &Question, burst: u16) -> Result<DesignQuestion, Failure> {
        if let Some(option) = question.of_sockets() {
            return Err(Failure::failed(format!(
                "{option} is of machines with two sockets, and {} has a device behind CXL or PCIe: leave it out, and choose request types \
                 and placements with conic trace cxl --platform {}",
                question.platform, question.platform
            )));
        }
        Ok(DesignQuestion {
            platform: question.platform.clone(),
            overrides: question.overrides.clone(),
            design: None,
            choices: Vec::new(),
            packet_size: question.packet_size,
            burst,
            seed: question.seed,
        })
    }

    /// The platform: see [`load`].
    ///
    /// # Errors
    ///
    /// As [`load`].
    pub fn platform(&self, elsewhere: impl Fn(&str) -> String) -> Result<Platform<CxlParameters>, Failure> {
        load(&self.platform, &self.overrides, elsewhere)
    }

    /// The design that is named, or the usual one.
    fn named(&self, platform: &Platform<CxlParameters>) -> Named {
        let usual = || {
            if platform.parameters().link.present {
                Named::combination(0)
            } else {
                Named { name: "DMA".to_owned(), design: Design::pcie() }
            }
        };
        self.design.clone().unwrap_or_else(usual)
    }

    /// What the design is called, with what was chosen otherwise.
    pub fn name(&self, platform: &Platform<CxlParameters>) -> String {
        let name = self.named(platform).name;
        if self.choices.is_empty() { name } else { format!("{name} but {}", self.choices.join(", ")) }
    }

    /// The design with other choices, made in a design that was changed already by `change`.
    ///
    /// # Errors
    ///
    /// A design for CXL where there is none, or what there is to choose from instead.
    pub fn design(
        &self,
        platform: &Platform<CxlParameters>,
        change: impl FnOnce(&mut Design),
    ) -> Result<Design, Failure> {
        let has_cxl = platform.parameters().link.present;
        let mut design = self.named(platform).design;
        if design.attachment == Attachment::Cxl && !has_cxl {
            let name = platform.name();
            return Err(Failure::failed(format!(
                "the device of {name} has no CXL, of whose requests this design is: leave --design out, or take --platform agilex7"
            )));
        }
        change(&mut design);
        for choice in &self.choices {
            let what = choice.split_once('=').map(|(what, chosen)| (what.trim(), chosen.trim()));
            let (what, chosen) = what.ok_or_else(|| {
                Failure::failed(format!("\"{choice}\": give a choice as in --choose transmit-packet=CS"))
            })?;
            if design.attachment == Attachment::Dma && !what.ends_with("batch") {
                return Err(Failure::failed(format!(
                    "DMA has no choice of {what}: over PCIe there is the receive batch and the transmit batch"
                )));
            }
            design = choose(&design, what, chosen).map_err(Failure::failed)?;
        }
        Ok(design)
    }
}
