// As far as the page uses it.
declare const hljs: any;
export default hljs;
