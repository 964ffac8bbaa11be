// What an error says.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace tandem {

// The message of the E thrown by fn, which has to be one line; fails the test if it does not throw one.
template <typename E, typename Fn>
std::string message_of(Fn&& fn) {
  try {
    fn();
  } catch (const E& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << "more than one line: " << message;
    return message;
  }
  ADD_FAILURE() << "nothing of the expected type was thrown";
  return {};
}

}  // namespace tandem
