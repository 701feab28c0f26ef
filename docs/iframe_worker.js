// Site search on pages opened from disk: browsers start no Worker for file: addresses, so one is stood in for by a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve())
      inside.__index = window.__index
      this.ready = this.load(address)
    }

    load(address) {
      const inside = this.frame.contentDocument
      return new Promise(resolve => {
        const script = inside.createElement("script")
        script.src = address
        script.addEventListener("load", resolve)
        inside.body.appendChild(script)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
