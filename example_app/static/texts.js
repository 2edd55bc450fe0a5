// What the scripts say, in the language of the page.
const CHINESE = {
  "Liked, once.": "已点赞，只算一次。",
  "No response. Try again.": "没有响应，请再试一次。",
  "no response": "没有响应",
  "still in progress": "仍在处理",
  "Attempt {attempt}: {outcome}. Retry in {seconds}\u00a0s.":
    "第 {attempt} 次：{outcome}，{seconds} 秒后重试。",
  "Attempt {attempt}: no response. Retry.": "第 {attempt} 次：没有响应，重试。",
  "The server answered {status}.": "服务端返回 {status}。",
  " Replayed: the response to the first attempt.": "这是重放：第一次的响应。",
  "Response: payment {number} of {amount} €.{how}": "响应：支付 {number}，{amount} €。{how}",
  "not at all": "0 次",
  once: "1 次",
  twice: "2 次",
  "three times": "3 次",
  "four times": "4 次",
  "five times": "5 次",
  "{made} times": "{made} 次",
  "Paid {times}{total}.": "付了 {times}{total}。",
  ": {paid} € instead of {amount} €": "：付了 {paid} €，应付 {amount} €",
  "with a key": "有",
  "without a key": "无",
  "in three steps": "有，分三步",
  "Process {pid}: {step}.": "进程 {pid}：{step}。",
  "Each step ran once. Processes: {processes}.": "每一步只执行一次。进程数：{processes}。",
  "Steps that ran: {names}.": "执行过的步骤：{names}。",
  "Running…": "正在执行……",
  "{words}{more} at {at} ms": "{at} 毫秒：{words}{more}",
  " ({detail})": "（{detail}）",
  ", ": "，",
  sent: "已发送",
  arrived: "到达服务端",
  "view started": "视图开始执行",
  ran: "执行完毕",
  "ran again": "重复执行",
  failed: "执行失败",
  rejected: "被拒绝",
  replayed: "重放",
  "will retry": "将重试",
  answered: "收到响应",
};

export function translate(text, values = {}) {
  const isChinese = document.documentElement.lang.startsWith("zh");
  const chosen = (isChinese && CHINESE[text]) || text;
  return chosen.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}
