// Every collective, on every implementation, against the same sums made in one thread: bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/comm/ranks_test.h"
#include "tandem/comm/sum.h"

namespace tandem {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kSumTypes[] = {DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32};

// Numbers from 2^-8 to 2^8, so that another order of adding gives other bits.
Bytes numbers(DType dtype, int64_t count, int seed) {
  std::minstd_rand generator(static_cast<unsigned>(seed));
  Bytes bytes(static_cast<size_t>(count * dtype_bytes(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const unsigned random = static_cast<unsigned>(generator());
    const float power = static_cast<float>(1 << (random % 16)) / 256;
    const float x =
        power * (1 + static_cast<float>(random >> 8 & 0xffff) / 65536) * (random & 16 ? 1.0f : -1.0f);
    std::byte* at = bytes.data() + i * dtype_bytes(dtype);
    const auto put = [&](auto value) { std::memcpy(at, &value, sizeof(value)); };
    switch (dtype) {
      case DType::F32: put(x); break;
      case DType::F64: put(x / 3.0); break;
      case DType::BF16: put(to_bfloat16(x)); break;
      case DType::F16: put(to_half(x)); break;
      case DType::I32: put(static_cast<int32_t>(x * 1000)); break;
      case DType::I16: put(static_cast<int16_t>(random)); break;
      default: put(static_cast<uint8_t>(random)); break;
    }
  }
  return bytes;
}

int seed_of(int rank, int64_t count) { return static_cast<int>(rank * 7919 + count); }

// The sum over ranks of elements [first, first + count) of what numbers() gives each of them.
Bytes expected_sum(DType dtype, int num_ranks, int64_t total, int64_t first, int64_t count, DType dst_dtype,
                   Bytes dst = {}) {
  std::vector<Bytes> all;
  std::vector<const std::byte*> parts;
  for (int rank = 0; rank < num_ranks; ++rank) all.push_back(numbers(dtype, total, seed_of(rank, total)));
  for (const Bytes& bytes : all) parts.push_back(bytes.data() + first * dtype_bytes(dtype));
  const bool accumulate = !dst.empty();
  dst.resize(static_cast<size_t>(count * dtype_bytes(dst_dtype)));
  sum_parts(parts, dtype, dst.data(), dst_dtype, count, accumulate ? SumInto::Add : SumInto::Overwrite);
  return dst;
}

struct Case {
  Kind kind;
  int size;
};

class EveryCommunicator : public testing::TestWithParam<Case> {
 protected:
  int size() const { return GetParam().size; }
  void run(const std::function<void(Communicator&)>& body) {
    run_threads(GetParam().kind, data_mesh(size()),
                [&](int, Communicators& own) { body(*own.get(Axis::Data)); });
  }
};

constexpr Case kCases[] = {{Kind::Threads, 2}, {Kind::Threads, 3}, {Kind::Threads, 4}, {Kind::Threads, 5},
                           {Kind::Shm, 2},     {Kind::Shm, 5},     {Kind::Tcp, 2},     {Kind::Tcp, 3},
                           {Kind::Tcp, 4},     {Kind::Tcp, 5},     {Kind::Tcp, 8}};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const char* names[] = {"Threads", "Shm", "Tcp"};
  return names[static_cast<int>(info.param.kind)] + std::to_string(info.param.size);
}

INSTANTIATE_TEST_SUITE_P(, EveryCommunicator, testing::ValuesIn(kCases), case_name);

TEST_P(EveryCommunicator, AllReduceSumsInRankOrderForOddCounts) {
  run([&](Communicator& c) {
    for (const DType dtype : kSumTypes) {
      for (const int64_t count : {1, 7, 64, 1025, 40001}) {
        Bytes data = numbers(dtype, count, seed_of(c.rank(), count));
        c.all_reduce(data, dtype, "x");
        ASSERT_EQ(data, expected_sum(dtype, c.size(), count, 0, count, dtype))
            << dtype_name(dtype) << " " << count;
      }
    }
  });
}

TEST_P(EveryCommunicator, ReduceScatterGivesEachRankItsPart) {
  run([&](Communicator& c) {
    for (const DType dtype : kSumTypes) {
      for (const int64_t part : {1, 129, 20011}) {
        const int64_t total = part * c.size();
        const Bytes src = numbers(dtype, total, seed_of(c.rank(), total));
        Bytes dst(static_cast<size_t>(part * dtype_bytes(dtype)));
        c.reduce_scatter(src, dtype, dst, dtype, SumInto::Overwrite, "x");
        ASSERT_EQ(dst, expected_sum(dtype, c.size(), total, c.rank() * part, part, dtype))
            << dtype_name(dtype) << " " << part;
      }
    }
  });
}

TEST_P(EveryCommunicator, ReduceScatterAccumulatesIntoAnotherType) {
  run([&](Communicator& c) {
    const int64_t part = 20011, total = part * c.size();
    const Bytes src = numbers(DType::BF16, total, seed_of(c.rank(), total));
    const Bytes before = numbers(DType::F32, part, 99);
    Bytes dst = before;
    c.reduce_scatter(src, DType::BF16, dst, DType::F32, SumInto::Add, "x");
    EXPECT_EQ(dst, expected_sum(DType::BF16, c.size(), total, c.rank() * part, part, DType::F32, before));
  });
}

TEST_P(EveryCommunicator, ReduceScatterRoundsTheSumIntoAShorterType) {
  run([&](Communicator& c) {
    for (const DType dtype : {DType::BF16, DType::F16}) {
      for (const int64_t part : {1, 129, 20011}) {
        const int64_t total = part * c.size();
        const Bytes src = numbers(DType::F32, total, seed_of(c.rank(), total));
        Bytes dst(static_cast<size_t>(part * dtype_bytes(dtype)));
        c.reduce_scatter(src, DType::F32, dst, dtype, SumInto::Overwrite, "x");
        ASSERT_EQ(dst, expected_sum(DType::F32, c.size(), total, c.rank() * part, part, dtype))
            << dtype_name(dtype) << " " << part;
      }
    }
  });
}

TEST_P(EveryCommunicator, ReduceScatterAndAllGatherWorkInPlace) {
  run([&](Communicator& c) {
    for (const int64_t part : {5, 20011}) {
      const int64_t total = part * c.size();
      Bytes data = numbers(DType::F32, total, seed_of(c.rank(), total));
      const std::span own =
          std::span(data).subspan(static_cast<size_t>(c.rank() * part * 4), static_cast<size_t>(part * 4));
      c.reduce_scatter(data, DType::F32, own, DType::F32, SumInto::Overwrite, "x");
      c.all_gather(own, data, "x");
      ASSERT_EQ(data, expected_sum(DType::F32, c.size(), total, 0, total, DType::F32)) << part;
    }
  });
}

TEST_P(EveryCommunicator, AllGatherAndAllToAllPutPartsInRankOrder) {
  run([&](Communicator& c) {
    const auto pattern = [&](size_t part, const std::function<int(int)>& value) {
      Bytes bytes(part * static_cast<size_t>(c.size()));
      for (int i = 0; i < c.size(); ++i) {
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(part) * i, part,
                    static_cast<std::byte>(value(i)));
      }
      return bytes;
    };
    for (const size_t part : {1, 17, 300007}) {
      const Bytes own(part, static_cast<std::byte>(c.rank() + 1));
      Bytes gathered(part * static_cast<size_t>(c.size())), exchanged(gathered.size());
      c.all_gather(own, gathered, "x");
      c.all_to_all(pattern(part, [&](int i) { return c.rank() * 16 + i; }), exchanged, "x");
      ASSERT_EQ(gathered, pattern(part, [](int i) { return i + 1; }));
      ASSERT_EQ(exchanged, pattern(part, [&](int i) { return i * 16 + c.rank(); }));
    }
  });
}

TEST_P(EveryCommunicator, BroadcastComesFromAnyRoot) {
  run([&](Communicator& c) {
    for (int root = 0; root < c.size(); ++root) {
      for (const size_t bytes : {size_t{1}, size_t{200001}}) {
        Bytes data(bytes, static_cast<std::byte>(c.rank() == root ? root + 40 : 0));
        c.broadcast(data, root, "x");
        ASSERT_TRUE(std::ranges::all_of(data, [&](std::byte b) { return static_cast<int>(b) == root + 40; }));
      }
    }
  });
}

TEST_P(EveryCommunicator, MessagesKeepTheirOrderBesideCollectives) {
  run([&](Communicator& c) {
    const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
    constexpr int kMessages = 12;
    const auto length = [](int i) { return static_cast<size_t>(i % 3 == 0 ? 300001 : i + 1); };
    std::jthread sender([&] {
      for (int i = 0; i < kMessages; ++i)
        c.send(Bytes(length(i), static_cast<std::byte>(c.rank() * 16 + i)), next, "m");
    });
    std::jthread receiver([&] {
      for (int i = 0; i < kMessages; ++i) {
        Bytes data(length(i));
        c.recv(data, previous, "m");
        const Bytes expected(length(i), static_cast<std::byte>(previous * 16 + i));
        EXPECT_EQ(data, expected) << i;
      }
    });
    for (int i = 0; i < 20; ++i) {
      std::vector<float> x(10007, static_cast<float>(c.rank()));
      c.all_reduce(std::as_writable_bytes(std::span(x)), DType::F32, "x");
      ASSERT_EQ(x[10006], static_cast<float>(c.size() * (c.size() - 1) / 2));
    }
  });
}

TEST_P(EveryCommunicator, CountsPayloadBytes) {
  run([&](Communicator& c) {
    const int64_t n = c.size();
    const auto sent_by = [&](const auto& call) {
      const int64_t before = c.counters().bytes_sent;
      call();
      return c.counters().bytes_sent - before;
    };
    Bytes part(400), whole(static_cast<size_t>(400 * n)), other(whole.size());
    EXPECT_EQ(
        sent_by([&] { c.reduce_scatter(whole, DType::F32, part, DType::F32, SumInto::Overwrite, "x"); }),
        400 * (n - 1));
    EXPECT_EQ(sent_by([&] { c.all_gather(part, whole, "x"); }), 400 * (n - 1));
    EXPECT_EQ(sent_by([&] { c.all_reduce(whole, DType::F32, "x"); }), 2 * 400 * (n - 1));
    EXPECT_EQ(sent_by([&] { c.all_to_all(whole, other, "x"); }), 400 * (n - 1));
    EXPECT_EQ(sent_by([&] { c.broadcast(part, 1, "x"); }), c.rank() == 1 ? 400 * (n - 1) : 0);
    EXPECT_EQ(sent_by([&] { c.barrier("x"); }), 0);
    // Padded to a multiple of the number of ranks.
    Bytes one(4);
    EXPECT_EQ(sent_by([&] { c.all_reduce(one, DType::F32, "x"); }), 2 * 4 * (n - 1));
    EXPECT_EQ(c.counters().calls, 7);
  });
}

TEST_P(EveryCommunicator, AbortEndsCallsEverywhereWithItsReason) {
  run([&](Communicator& c) {
    c.barrier("all are connected");
    std::jthread aborter;
    if (c.rank() == 1) {
      aborter = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that most are waiting by then
        c.abort("the disk is full on rank 1");
      });
    }
    try {
      Bytes data(64);
      if (c.rank() != 1) c.barrier("never");
      if (c.rank() == 1) c.recv(data, 0, "never");
      FAIL() << "the call returned";
    } catch (const CommError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("never (data axis): the disk is full on rank 1"), std::string::npos) << text;
    }
    EXPECT_THROW(c.barrier("after"), CommError);
  });
}

TEST(Communicator, OfOneRankIsTheIdentity) {
  EXPECT_EQ(connect_threads(MeshShape{}, {}).at(0).get(Axis::Data), nullptr);
}

TEST(Communicator, AThreadThatLeavesEndsTheWaitOfTheOthers) {
  run_threads(Kind::Threads, data_mesh(2), [](int rank, Communicators& own) {
    if (rank == 1) return;
    try {
      own.get(Axis::Data)->barrier("alone");
      FAIL();
    } catch (const CommError& error) {
      EXPECT_STREQ(
          error.what(),
          "barrier alone (data axis): rank 1 (a thread) has left the group; its own output says why");
    }
  });
}

// What both ranks say when rank 1 calls something else than rank 0; a rank may also be done before it is
// told.
std::string difference(Kind kind, const std::function<void(Communicator&)>& zero,
                       const std::function<void(Communicator&)>& one) {
  std::vector<std::string> messages(2);
  run_threads(kind, data_mesh(2), [&](int rank, Communicators& own) {
    try {
      (rank == 0 ? zero : one)(*own.get(Axis::Data));
    } catch (const CommError& error) {
      messages[static_cast<size_t>(rank)] = error.what();
    }
  });
  return messages[0] + " / " + messages[1];
}

void expect_told(const std::string& told, const std::string& part) {
  EXPECT_NE(told.find(part), std::string::npos) << told;
  EXPECT_NE(told.find("their programs differ"), std::string::npos) << told;
}

TEST(Communicator, TellsWhenRanksCallDifferentThings) {
  for (const Kind kind : {Kind::Threads, Kind::Shm, Kind::Tcp}) {
    Bytes eight(8), twelve(12);
    expect_told(difference(
                    kind, [&](Communicator& c) { c.broadcast(eight, 0, "x"); },
                    [&](Communicator& c) { c.broadcast(twelve, 0, "x"); }),
                "of 8 bytes");
    expect_told(difference(
                    kind, [&](Communicator& c) { c.barrier("x"); },
                    [&](Communicator& c) { c.all_reduce(eight, DType::F32, "x"); }),
                "all_reduce");
    expect_told(difference(
                    kind, [&](Communicator& c) { c.send(eight, 1, "x"); },
                    [&](Communicator& c) { c.recv(twelve, 0, "x"); }),
                "sends 8 bytes where");
  }
}

TEST(Communicator, TellsWhenRanksAreAtDifferentPlaces) {
  expect_told(difference(
                  Kind::Tcp, [](Communicator& c) { c.barrier("blocks.1"); },
                  [](Communicator& c) { c.barrier("blocks.2"); }),
              "calls barrier blocks.1 of 0 bytes");
  // One has sent what nobody took and is at the next; whoever notices first tells.
  Bytes data(8);
  const std::string told = difference(
      Kind::Tcp,
      [&](Communicator& c) {
        c.broadcast(data, 0, "a");
        c.barrier("b");
      },
      [&](Communicator& c) { c.barrier("b"); });
  const bool by_number = told.find("as its call 2") != std::string::npos;
  expect_told(told, by_number ? "barrier b of 0 bytes as its call 1" : "calls broadcast a of 8 bytes");
}

TEST(Communicator, EachAxisHasItsOwnRanks) {
  MeshShape shape;
  shape.data = shape.tensor = shape.pipeline = 2;
  for (const Kind kind : {Kind::Threads, Kind::Shm, Kind::Tcp}) {
    run_threads(kind, shape, [&](int rank, Communicators& own) {
      const MeshPosition position = MeshPosition::of(shape, rank);
      for (const Axis axis : kAxes) {
        Communicator& c = *own.get(axis);
        std::vector<double> sum{static_cast<double>(1 << rank)};
        c.all_reduce(std::as_writable_bytes(std::span(sum)), DType::F64, "x");
        double expected = 0;
        for (const int member : position.group(axis)) expected += 1 << member;
        EXPECT_EQ(sum[0], expected) << axis_name(axis);
        EXPECT_EQ(c.rank(), position.index(axis));
      }
    });
  }
}

}  // namespace
}  // namespace tandem
