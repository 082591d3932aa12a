// parse_op_msg() in steps, for requests whose size a peer decides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "proxy/wire/op_msg.h"

namespace spillway::wire {

class SectionParser;

class OpMsgParser {
 public:
  // The message stays where it is.
  explicit OpMsgParser(Bytes whole_message);
  OpMsgParser(const OpMsgParser&) = delete;
  OpMsgParser& operator=(const OpMsgParser&) = delete;
  ~OpMsgParser();

  // Processes up to `bytes` of the checksum, or up to `documents` documents of sequences. True: that was all, and the
  // message may be taken.
  Result<bool> step(std::size_t bytes, std::size_t documents);
  OpMsg take() && { return std::move(parsed_); }

 private:
  Bytes message_;
  std::size_t summed_bytes_ = 0;
  std::uint32_t sum_ = 0;
  OpMsg parsed_;
  std::unique_ptr<SectionParser> parser_;
};

}  // namespace spillway::wire
