/** The network between the browser and REST, which tests can cut. */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export class Wire {
  private readonly sockets = new Set<Socket>();
  private isCut = false;
  private readonly server;
  private readonly port: number;

  constructor(target: string) {
    this.port = Number(new URL(target).port);
    this.server = createServer((near) => this.join(near));
  }

  /** Starts to listen; returns the origin of pages behind the wire. */
  async open(): Promise<string> {
    await new Promise<void>((done) => this.server.listen(0, "127.0.0.1", done));
    return `http://127.0.0.1:${String((this.server.address() as AddressInfo).port)}`;
  }

  /** Breaks all connections, and each new one until `mend`. */
  cut(): void {
    this.isCut = true;
    for (const socket of this.sockets) socket.destroy();
  }

  mend(): void {
    this.isCut = false;
  }

  async close(): Promise<void> {
    const closed = new Promise((done) => this.server.close(done));
    this.cut();
    await closed;
  }

  private join(near: Socket): void {
    if (this.isCut) {
      near.destroy();
      return;
    }
    const far = connect(this.port, "127.0.0.1");
    for (const socket of [near, far]) {
      this.sockets.add(socket);
      socket.on("error", () => undefined); // the other end went first
      socket.on("close", () => {
        this.sockets.delete(socket);
        (socket === near ? far : near).destroy();
      });
    }
    near.pipe(far);
    far.pipe(near);
  }
}
