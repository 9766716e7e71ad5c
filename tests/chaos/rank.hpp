// A process that is a rank, round after round. It is told what to do, and tells what came of it, in messages over one
// socket; what a round is made of it works out itself from seed and round.
//
//   to it: "id"                               from it: "id HEX"
//          "play SEED ROUND RANK HEX"                  "trouble"              it is guilty, and begins
//                                                      "lost LINE"            the communicator failed with this line
//                                                      "alone"                guilty: the others went on without it
//                                                      "shrunk"               the survivors' communicator works
//                                                      "done USAGE"           all is given back
//                                                      "wrong TEXT"           the round has failed
#pragma once

namespace tensorwire::chaos {

/// Serves the controller at the other end of `socket` until it hangs up. @return the exit status.
int serve(int socket);

}  // namespace tensorwire::chaos
